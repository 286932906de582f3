"""One call of the command line: what is asked is run, and how it ends is the exit code."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from dataflow_assets.cli.console import err, sentence, trace
from dataflow_assets.cli.parser import COMMANDS, command_line, options_of
from dataflow_assets.errors import ManifestError
from dataflow_assets.errors.likely_names import did_you_mean_or
from dataflow_assets.languages.common.keys import suggest


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and hands back its exit code."""
    parser = command_line()
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        parser.print_help(sys.stderr)
        return 2
    options = _parse(parser, words)
    if not (options.verbose or sys.warnoptions):
        warnings.simplefilter("ignore")
    try:
        code: int = options.command(options)
    except BrokenPipeError:
        # whoever read our output has seen enough; nothing may be written there any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except ManifestError as error:
        err(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 (one sentence; the traceback on demand)
        if options.verbose:
            err(trace(error))
        err(f"dataflow: {sentence(error)}")
        return 1
    return code


def _parse(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.Namespace:
    """The parsed command line; what is wrong with it ends the process, with the usage."""
    if not given[0].startswith("-") and given[0] not in COMMANDS:
        parser.error(f"unknown command {given[0]}; {suggest(given[0], COMMANDS)}")
    options, unknown = parser.parse_known_args(given)
    if unknown:
        command = next(one for one in given if one in COMMANDS)
        parser.error(_unknown_word(command, unknown[0]))
    if getattr(options, "table", "keep") == "truncate" and options.start == "checkpoint":
        parser.error("--table truncate needs --from: rows that were read stay read otherwise")
    if getattr(options, "table", "keep") == "adopt" and options.start != "checkpoint":
        parser.error("--table adopt goes on from the checkpoint: leave --from out")
    return options


def _unknown_word(command: str, word: str) -> str:
    listed = f"`dataflow {command} --help` lists what it takes"
    if not word.startswith("-"):
        return f"{command} does not take {word}; {listed}"
    option = word.partition("=")[0]
    return f"unknown option {option}; {did_you_mean_or(option, options_of(command), listed)}"
