"""Project templates: a machine for which a model in C is built, and the commands that build and run it.

A template is a folder with a `template.json`:

    about        one sentence
    tools        option: how to install the program that it names
    options      name: {help, when, default, choices}; `when` is the last step that may give it: create, build or
                 run. A choice has further values by name
    sources      the files of the folder that go into a project
    build        commands, run in the project's folder, for each of its programs
    flash        commands that bring the image to the board; without any, `about_flash` says why none are needed
    run          the command that runs a program, in a folder of its own
    file         how a name of a file is written where `run` says {files}

Words of commands may name values: options, what their choices add, {model}, {program}, {image}, {project}, {files}, and
{exact}, the compiler options that floats need. A word that is one such name alone is split at spaces. No command of
a template runs before a project is built.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import ArtifactError, OptionError, TargetError
from tilewright.base.json_reading import read_json
from tilewright.base.settings import nearest

STEPS: Final = ("create", "build", "run")
"""The steps in which options are given, in order."""
DESCRIPTION: Final = "template.json"
_SHIPPED: Final = Path(__file__).parent / "templates"
_KEYS: Final = {
    "about": str, "tools": dict, "options": dict, "sources": list, "build": list, "flash": list, "about_flash": str,
    "run": list, "file": str
}
_NAME: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class ProjectOption:
    """An option of a template."""

    name: str
    help: str
    when: str
    default: str
    choices: Mapping[str, Mapping[str, str]]

    def __str__(self) -> str:
        choices = f"; one of {', '.join(self.choices)}" if self.choices else ""
        return (
            f"{self.name}={self.default}  ({'create-project' if self.when == 'create' else self.when}) "
            f"{self.help}{choices}"
        )


class TemplateProject:
    """A template; see the module. `name` is the name of its folder. Raises `ArtifactError` for a missing or malformed
    template."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.resolve().name
        path = folder / DESCRIPTION
        try:
            found = read_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ArtifactError(
                f"'{folder}' is not a project template: it has no {DESCRIPTION}", code="TW0813"
            ) from None
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{path}: cannot be read: {error}", code="TW0813") from None
        wrong = next(
            (k for k, kind in _KEYS.items() if not isinstance(found, dict) or not isinstance(found.get(k), kind)), None)
        if wrong is not None:
            raise ArtifactError(
                f"{path}: '{wrong}' must be a {_KEYS[wrong].__name__}; see the templates that come with this package, "
                f"in {_SHIPPED}",
                code="TW0813")
        for key, is_right in (("sources", _words), ("run", _words), ("build", _commands), ("flash", _commands)):
            if not is_right(found[key]):
                what = "texts" if is_right is _words else "commands, which are lists of texts"
                raise ArtifactError(
                    f"{path}: '{key}' must be a list of {what}; see the templates that come with this package, in "
                    f"{_SHIPPED}",
                    code="TW0813")
        self.description: dict[str, Any] = found
        try:
            self.options = {
                name: ProjectOption(
                    name, str(o["help"]), str(o["when"]), str(o["default"]),
                    {str(c): {str(k): str(x) for k, x in dict(v).items()} for c, v in o.get("choices", {}).items()})
                for name, o in found["options"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(
                f"{path}: an option is invalid ({type(error).__name__}: {error}); it has help, when, default and "
                "perhaps choices",
                code="TW0813"
            ) from None
        if bad := next(
            (o for o in self.options.values() if o.when not in STEPS or (o.choices and o.default not in o.choices)),
            None
        ):
            raise ArtifactError(
                f"{path}: the option '{bad.name}' has when='{bad.when}' and default='{bad.default}'; `when` is one of "
                f"{', '.join(STEPS)}, `default` one of the choices",
                code="TW0813")

    @classmethod
    def from_directory(cls, template_project_dir: str | os.PathLike[str]) -> TemplateProject:
        """Return the template in a folder."""
        return cls(Path(template_project_dir))

    def info(self) -> dict[str, Any]:
        """Return the description of the template and of its options."""
        options = [
            {"name": o.name, "help": o.help, "when": o.when, "default": o.default, "choices": list(o.choices)}
            for o in self.options.values()]
        return {"platform_name": self.name, "about": self.description["about"], "project_options": options}

    def listed(self) -> str:
        """Return the options as lines of text."""
        return "\n".join([f"{self.name}: {self.description['about']}", *(f"  {o}" for o in self.options.values())])

    def generate_project_from_mlf(
        self, model_library_format_path: str | os.PathLike[str], project_dir: str | os.PathLike[str],
        options: Mapping[str, str] | None = None
    ) -> Any:
        """Create a project for the model in a Model Library; see `project.generate_project_from_mlf`."""
        from tilewright.compiler.micro.project import generate_project_from_mlf

        return generate_project_from_mlf(self.folder, project_dir, model_library_format_path, options)

    def checked(self, given: Mapping[str, Any], step: str) -> dict[str, str]:
        """Return the options of a step as texts. Raises `OptionError` for options that are unknown, given in a later
        step than allowed, or have an invalid value."""
        made = {}
        for name, value in given.items():
            option = self.options.get(name)
            if option is None:
                raise OptionError(
                    f"--project-option {name}: {self.name} has no such option{nearest(name, self.options)}; it has "
                    f"{', '.join(self.options)}",
                    code="TW0203")
            if STEPS.index(option.when) < STEPS.index(step):
                raise OptionError(
                    f"--project-option {name}: it is fixed when a project is "
                    f"{'created' if option.when == 'create' else 'built'}; do that again to change it",
                    code="TW0204")
            if option.choices and str(value) not in option.choices:
                raise OptionError(
                    f"--project-option {name}: '{value}' is not one of {', '.join(option.choices)}", code="TW0203")
            made[name] = str(value)
        return made

    def values(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the values that commands may contain: the options with their defaults, and the values that choices
        add."""
        made = {name: options.get(name, o.default) for name, o in self.options.items()}
        for name, o in self.options.items():
            made |= o.choices.get(made[name], {})
        return made

    def command(self, words: Sequence[str], values: Mapping[str, str]) -> list[str]:
        """Return a command with its values substituted. Raises `ArtifactError` for a name without a value."""
        return [w for word in words for w in self._filled(word, values)]

    def _filled(self, word: str, values: Mapping[str, str]) -> Iterator[str]:
        if unknown := next((n for n in _NAME.findall(word) if n not in values), None):
            raise ArtifactError(
                f"{self.folder / DESCRIPTION}: '{{{unknown}}}' in '{word}' is not the name of a value; the values are "
                f"{', '.join(sorted(values))}",
                code="TW0813")
        alone = _NAME.fullmatch(word)
        if alone and alone[1] in _LISTS | {n for o in self.options.values() for c in o.choices.values() for n in c}:
            yield from values[alone[1]].split()
        else:
            yield _NAME.sub(lambda m: values[m[1]], word)

    def missing(self, program: str, values: Mapping[str, str]) -> TargetError:
        """Return the message for a program that is not installed."""
        option = next((o for o in self.description["tools"] if values.get(o) == program), None)
        way = (
            f"; {self.description['tools'][option]}, or name another one: --project-option {option}=PROGRAM" if option
            else ""
        )
        return TargetError(
            f"the template {self.name} needs the program '{program}', which is not installed{way}", code="TW0507")


_LISTS: Final = {"files", "exact"}


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(w, str) and "\0" not in w for w in value)


def _commands(value: Any) -> bool:
    return isinstance(value, list) and all(map(_words, value))


def shipped_templates() -> list[str]:
    """Return the names of the templates of this package, sorted."""
    return sorted(p.name for p in _SHIPPED.iterdir() if (p / DESCRIPTION).is_file())


def get_microtvm_template_projects(platform: str) -> str:
    """Return the folder of a template of this package; TVM's "crt" is "host". Raises `OptionError` for an unknown name.
    """
    known = shipped_templates()
    platform = "host" if platform == "crt" else platform
    if platform not in known:
        raise OptionError(
            f"there is no template '{platform}'{nearest(platform, known)}; choose from {', '.join(known)}, or give the "
            "folder of your own",
            code="TW0203")
    return str(_SHIPPED / platform)
