"""TVM's `tvm.micro`: models as C files for small systems, and projects that build them for bare-metal machines.

    tvmc compile model.tflite --target c -f mlf -o model.tar            or model.save_c_library("model.tar")
    project = micro.generate_project_from_mlf(micro.get_microtvm_template_projects("qemu-arm"), "project", "model.tar")
    project.build()
    outputs = project.run([image])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.compiler.micro.library import ModelLibrary, read_model_library
from tilewright.compiler.micro.project import GeneratedProject, generate_project, generate_project_from_mlf
from tilewright.compiler.micro.session import Session, create_local_debug_executor, create_local_graph_executor
from tilewright.compiler.micro.template import (
    ProjectOption,
    TemplateProject,
    get_microtvm_template_projects,
    shipped_templates,
)
from tilewright.compiler.model_library import export_model_library_format

if TYPE_CHECKING:
    from tilewright.search.micro import AutoTvmModuleLoader, autotvm_build_func

__all__ = [
    "AutoTvmModuleLoader", "GeneratedProject", "ModelLibrary", "ProjectOption", "Session", "TemplateProject",
    "autotvm_build_func", "create_local_debug_executor", "create_local_graph_executor",
    "export_model_library_format", "generate_project", "generate_project_from_mlf",
    "get_microtvm_template_projects", "read_model_library", "shipped_templates",
]


def __getattr__(name: str) -> Any:
    if name in ("AutoTvmModuleLoader", "autotvm_build_func"):
        from tilewright.search import micro

        return getattr(micro, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
