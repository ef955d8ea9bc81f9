"""The table of commands. Nothing heavy is imported here: `mt --help` has to answer at once."""

from typing import Annotated

import typer

from mt.commands.average import average
from mt.commands.compare import compare
from mt.commands.data import data
from mt.commands.evaluate import evaluate
from mt.commands.export import export
from mt.commands.import_marian import import_marian
from mt.commands.score import score
from mt.commands.train import train
from mt.commands.translate import translate

app = typer.Typer(
    name="mt",
    help="Train, evaluate and run translation models.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,  # importing rich would cost more than the rest of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# train hands everything to Hydra, --help included
passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command(context_settings=passed_on, add_help_option=False)(train)
app.command()(data)
app.command()(translate)
app.command()(score)
app.command()(evaluate)
app.command()(compare)
app.command()(average)
app.command()(export)
app.command("import")(import_marian)


def show_version(wanted: bool) -> None:
    if wanted:
        import mt

        print(f"mt {mt.__version__}")
        raise typer.Exit()


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Version.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
