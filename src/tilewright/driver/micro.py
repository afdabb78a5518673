"""`tvmc micro` and `tilewright micro`: projects that build a model in C for a board or an emulator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from tilewright.base.errors import OptionError
from tilewright.compiler.micro.project import GeneratedProject, generate_project_from_mlf
from tilewright.compiler.micro.template import TemplateProject, get_microtvm_template_projects, shipped_templates
from tilewright.driver.application import examples

_OWN: Final = "template"
"""The platform name that selects the template of `--template-dir`."""

MANY: Final = ("--project-option",)
"""Options that take several values in a row."""

app = typer.Typer(
    name="micro", help="Projects of models in C for small systems: create, build, flash and test them.",
    rich_markup_mode=None)

Project = Annotated[Path, typer.Argument(metavar="PROJECT_DIR", help="The folder of the project.")]
Platform = Annotated[
    str, typer.Argument(metavar="[TEMPLATE]", help="The template of the project. Optional: the project stores it.")
]
Options = Annotated[
    list[str] | None,
    typer.Option("--project-option", metavar="NAME=VALUE...", help="Options of the project's template.")
]
ListOptions = Annotated[
    bool, typer.Option("--list-options", help="Show the options of the project's template, and exit.")
]


def named(pairs: Sequence[str] | None) -> dict[str, str]:
    """Convert `["board=mps2-an500"]` to a dictionary. Raises `OptionError` for a pair without a name or `=`."""
    made = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise OptionError(f"--project-option: '{pair}' has no value; write {pair or 'NAME'}=VALUE", code="TW0202")
        made[name] = value
    return made


def _template(name: str, folder: Path | None) -> TemplateProject:
    if (name == _OWN) is not (folder is not None):
        raise OptionError(
            f"--template-dir: give the folder of your template together with the word {_OWN}; the templates that are "
            f"here are {', '.join(shipped_templates())}",
            code="TW0204")
    return TemplateProject.from_directory(folder or get_microtvm_template_projects(name))


def _project(folder: Path, name: str) -> GeneratedProject:
    """Return the project in a folder; raises `OptionError` if its template is not `name`."""
    made = GeneratedProject.from_directory(folder)
    if name not in ("", _OWN, made.template.name):
        raise OptionError(
            f"the project '{folder}' is of the template {made.template.name}, not of {name}; leave the name out",
            code="TW0204")
    return made


@app.command("create-project", epilog=examples(
    "tvmc compile model.tflite --target c -f mlf -o model.tar",
    "tvmc micro create-project project model.tar qemu-arm --project-option board=mps2-an500",
    "tvmc micro create-project project model.tar template --template-dir my-board"))
def create_command(
    project_dir: Project,
    library: Annotated[
        Path, typer.Argument(metavar="MLF", help="The model, written by tvmc compile --target c -f mlf.")
    ],
    platform: Annotated[
        str,
        typer.Argument(
            metavar="TEMPLATE", help=f"The machine: {', '.join(shipped_templates())}; or {_OWN}, with --template-dir."
        )
    ],
    template_dir: Annotated[
        Path | None, typer.Option("--template-dir", metavar="DIR", help="The folder of your own template.")
    ] = None,
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite an existing project.")] = False,
    project_option: Options = None,
    list_options: ListOptions = False,
) -> None:
    """Create the project PROJECT_DIR from the model in MLF."""
    template = _template(platform, template_dir)
    if list_options:
        typer.echo(template.listed())
        return
    made = generate_project_from_mlf(template.folder, project_dir, library, named(project_option), force=force)
    typer.echo(
        f"Created {project_dir} of '{made.model}' for {made.template.name}; build it with: tvmc micro build "
        f"{project_dir}")


@app.command("build")
def build_command(
    project_dir: Project,
    platform: Platform = "",
    force: Annotated[bool, typer.Option("-f", "--force", help="Build again. This is always done.")] = False,
    project_option: Options = None,
    list_options: ListOptions = False,
) -> None:
    """Compile the programs of a project, and store the given options in it."""
    project = _project(project_dir, platform)
    if list_options:
        typer.echo(project.template.listed())
        return
    for image in project.build(named(project_option)):
        typer.echo(f"Built {project_dir / 'build' / image.name} ({image.stat().st_size / 1e6:.1f} MB)")


@app.command("flash")
def flash_command(project_dir: Project, platform: Platform = "", list_options: ListOptions = False) -> None:
    """Copy the program of a project to the board."""
    project = _project(project_dir, platform)
    typer.echo(project.template.listed() if list_options else f"{project_dir}: {project.flash()}")


@app.command("test")
def test_command(project_dir: Project, platform: Platform = "", project_option: Options = None) -> None:
    """Run the model of a project on values with known results."""
    typer.echo(_project(project_dir, platform).test(named(project_option)).strip())
