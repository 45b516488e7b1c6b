"""The commands and their help."""

from typing import Any

import typer

from rltune.cli.check import check
from rltune.cli.clean import clean
from rltune.cli.compare import compare
from rltune.cli.convert import convert
from rltune.cli.dashboard import dashboard
from rltune.cli.doctor import doctor
from rltune.cli.export import export
from rltune.cli.final_test import final_test
from rltune.cli.init import init
from rltune.cli.inspect import audit, status
from rltune.cli.lineage import register
from rltune.cli.next import next_trial
from rltune.cli.options import TakesValues
from rltune.cli.plan import plan
from rltune.cli.play import play
from rltune.cli.report import report
from rltune.cli.rerun import continue_, rerun
from rltune.cli.serve_retriever import serve_retriever
from rltune.cli.sweep import sweep
from rltune.cli.sync import sync
from rltune.cli.warmstart import warmstart

_SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="rltune",
    help="What does this one knob do to an LLM agent trained with RL? Sweeps in which exactly one "
    "knob moves, and the proof of it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)
lineage = typer.Typer(
    name="lineage",
    help="Query the table of everything that was tried and how it ended.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=_SETTINGS,
)


def _examples(*lines: str) -> str:
    """Return the end of a help text, its lines kept as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


app.command(
    epilog=_examples(
        "rltune sweep sweeps/quickstart.yaml",
        "rltune sweep sweeps/kl.yaml --set budget.steps=20 --seeds 0",
        "rltune sweep sweeps/kl.yaml --budget 8h",
    )
)(sweep)
app.command(
    "next",
    epilog=_examples("rltune next sweeps/kl.yaml", "rltune next runs/kl-31966bc3"),
)(next_trial)
app.command(
    epilog=_examples(
        "rltune check sweeps/kl.yaml",
        "rltune check sweeps/kl.yaml sweeps/entropy.yaml sweeps/rv_filter.yaml",
        "rltune check --schema > sweep.schema.json",
    )
)(check)
app.command(
    epilog=_examples(
        "rltune plan sweeps/kl.yaml --profile paper",
        "rltune plan sweeps/kl.yaml --json",
    )
)(plan)
app.command(epilog=_examples("rltune status", "rltune status runs/kl-31966bc3 --watch"))(status)
app.command(epilog=_examples("rltune dashboard runs/kl-31966bc3", "rltune dashboard --no-save"))(
    dashboard
)
app.command(epilog=_examples("rltune sync runs/kl-31966bc3", "rltune sync --dry-run"))(sync)
app.command(epilog=_examples("rltune audit runs/kl-31966bc3"))(audit)
app.command(
    epilog=_examples(
        "rltune export runs/kl-31966bc3",
        "rltune export runs/kl-31966bc3/figures --from-tables",
    )
)(export)
app.command(
    epilog=_examples(
        "rltune report runs/kl-31966bc3",
        "rltune report runs/kl-31966bc3 --out kl.html",
    )
)(report)
app.command(
    cls=TakesValues,
    epilog=_examples(
        "rltune compare kl_loss_coef=0.01 kl_loss_coef=0.0",
        "rltune compare 0.01@0 0.0@0 runs/kl-31966bc3",
        "rltune compare runs/kl-31966bc3:0.01 runs/kl-5d0e7a41:0.01",
    ),
)(compare)
app.add_typer(lineage)
register(lineage, _examples)
app.command(
    "test",
    cls=TakesValues,
    epilog=_examples(
        "rltune test kl_loss_coef=0.01@0",
        "rltune test runs/kl-31966bc3/trials/kl_loss_coef=0.01-s0-2f6b0f1c9a --again",
    ),
)(final_test)
app.command(
    cls=TakesValues,
    epilog=_examples(
        "rltune rerun kl_loss_coef=0.01@0 --verify",
        "rltune rerun kl_loss_coef=0.01@0 --verify --steps 3",
        "rltune rerun kl_loss_coef=0.01@0 --seed 7 --set optim.lr=2e-6",
    ),
)(rerun)
app.command(
    "continue",
    cls=TakesValues,
    epilog=_examples(
        "rltune continue kl_loss_coef=0.01@0",
        "rltune continue kl_loss_coef=0.01@0 --set budget.steps=100",
    ),
)(continue_)
app.command(
    epilog=_examples(
        "rltune play sokoban",
        "rltune play multihop_qa --solver --seed 7",
        "rltune play sokoban --policy tiny --tasks 20",
        "rltune play sweeps/frozenlake_slip.yaml --set success_rate=0.8",
    )
)(play)
app.command(
    epilog=_examples(
        "rltune warmstart sokoban --out weights/sokoban",
        "rltune sweep sweeps/quickstart.yaml --set policy.model=weights/sokoban",
    )
)(warmstart)
app.command(
    epilog=_examples(
        "rltune convert smollm2 --out smollm2",
        "rltune convert model.Q8_0.gguf --out my-model",
    )
)(convert)
app.command(
    "serve-retriever",
    epilog=_examples(
        "rltune serve-retriever --port 0",
        "rltune serve-retriever --corpus wiki.jsonl --host 0.0.0.0",
    ),
)(serve_retriever)
app.command(epilog=_examples("rltune clean runs/kl-31966bc3 --dry-run", "rltune clean"))(clean)
app.command(epilog=_examples("rltune doctor"))(doctor)
app.command(epilog=_examples("rltune init my-study"))(init)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"rltune {version('rltune')}")
        except PackageNotFoundError:
            typer.echo("rltune (not installed; run from source)")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Take the options before the command."""


def command() -> Any:
    """Return the whole command line as one callable command."""
    return typer.main.get_command(app)
