"""TVM's names for tuning models of microTVM: `micro.autotvm_build_func`, `micro.AutoTvmModuleLoader`.

    builder = autotvm.LocalBuilder(build_func=micro.autotvm_build_func, runtime=Runtime("crt", {"system-lib": True}))
    runner = autotvm.LocalRunner(module_loader=micro.AutoTvmModuleLoader(template, {"verbose": False}))

Each candidate becomes a program of its own, with the kernel and a clock around it. The template's machine runs it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.compiler.micro.template import TemplateProject
from tilewright.search.boards import ProgramRunner
from tilewright.search.boards import board_build as autotvm_build_func
from tilewright.search.runner import TrialRunner

__all__ = ["AutoTvmModuleLoader", "autotvm_build_func"]

_ON_THIS_MACHINE: Final = "{project}/build/{image}"
"""The first word of the command that runs a project's program on this machine."""


class AutoTvmModuleLoader:
    """The machine of a project template, for `LocalRunner(module_loader=…)`.

    Only templates for this machine measure, because the program reads files and a clock of the system. Raises
    `OptionError` for the others and for unknown options, `ArtifactError` for a folder that is no template.
    """

    def __init__(
        self, template_project_dir: str | os.PathLike[str], project_options: Mapping[str, Any] | None = None
    ) -> None:
        self.template = TemplateProject.from_directory(Path(template_project_dir))
        self.options = self.template.checked(project_options or {}, "create")
        if self.template.description["run"][:1] != [_ON_THIS_MACHINE]:
            raise OptionError(
                f"programs of the template '{self.template.name}' run on another machine, which cannot time kernels; "
                "use the template 'crt', or SSHRunner", code="TW1110")

    def runner(self, timeout: float, number: int, repeat: int, min_repeat_ms: float, cooldown: float) -> TrialRunner:
        """Return the runner that times candidates on the template's machine; the options are those of `LocalRunner`."""
        return ProgramRunner(timeout, number, repeat, min_repeat_ms, cooldown)
