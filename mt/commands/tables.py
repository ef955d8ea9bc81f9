"""Results on standard output: aligned for a person at a terminal, tab-separated for everything else."""

import sys

from mt.translation.output import open_output


def print_lines(lines: list[str]) -> None:
    """Writes lines as UTF-8, whatever the locale; bytes of a file's name that are none become escapes."""
    with open_output(None) as file:
        file.write("".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))


def print_table(title: str, columns: list[str], rows: list[list[str]], notes: list[str]) -> None:
    """Writes a table; the first column is text, the others are numbers. Each of the notes is a line below it.

    Without a terminal the title and the notes begin with "# ".
    """
    if not sys.stdout.isatty():
        cells = [columns, *rows]
        table = ["\t".join(" ".join(cell.split("\t")) for cell in row) for row in cells]
        print_lines([f"# {title}", *table, *(f"# {note}" for note in notes)])
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    console.print(table)
    for note in notes:
        console.print(Text(note, style="dim"), soft_wrap=True)
