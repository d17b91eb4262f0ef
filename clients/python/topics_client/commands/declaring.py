"""Commands as functions: their annotated parameters become options and arguments of click.

    def read(
        topic: Annotated[str, Argument(metavar="TOPIC", help="Name of the topic.")],
        limit: Annotated[int, Option("--limit", "-n", min=0, help="Stop after so many records.")] = 0,
    ) -> None: ...

A parameter's type says what is taken: str, int, float, bool (a flag), an Enum of strings (its values), Path, and lists
of these. One without a default must be given. A dataclass whose fields are annotated so stands for all of them, which
commands have in common. Libraries that do the same take several times as long to load.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

#: Lines of help are not longer on wider terminals.
_WIDTH = 100
#: The most characters of a command's first sentence.
_SENTENCE = 200
_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH}


Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


class Argument:
    """A parameter without a name on the command line. `metavar`: its placeholder in the help text.

    `complete` lists values for the shell, by their beginning.
    """

    def __init__(
        self,
        *,
        help: str,
        metavar: str = "",
        min: float | None = None,
        max: float | None = None,
        exists: bool = False,
        file_okay: bool = True,
        dir_okay: bool = True,
        complete: Completer | None = None,
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max
        self.complete = complete
        self.path = click.Path(exists=exists, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)


class Option:
    """A parameter with names.

    `show_default`: its default in the help text, or other words for it. `panel`: the heading that it is below. `min`
    and `max` limit numbers; `exists`, `file_okay` and `dir_okay` are for paths.
    """

    def __init__(
        self,
        *names: str,
        help: str,
        metavar: str | None = None,
        envvar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        exists: bool = False,
        file_okay: bool = True,
        dir_okay: bool = True,
        panel: str = "Options",
        show_default: bool | str = True,
        default_factory: Callable[[], Any] | None = None,
        hidden: bool = False,
        complete: Completer | None = None,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.envvar = envvar
        self.min = min
        self.max = max
        self.panel = panel
        self.show_default = show_default
        self.default_factory = default_factory
        self.hidden = hidden
        self.complete = complete
        self.path = click.Path(exists=exists, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)


class _Option(click.Option):
    """An option below a heading."""

    panel: str = "Options"


class _Values(click.Choice[str]):
    """The values of an Enum of strings."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        super().__init__([each.value for each in kind])
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The member with that value."""
        return value if isinstance(value, self._kind) else self._kind(super().convert(value, param, ctx))


class Command(click.Command):
    """A command whose options are below their headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each panel in the order of its first option, those without one first."""
        panels: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                panels.setdefault(getattr(param, "panel", "Options"), []).append(record)
        for heading, lines in panels.items():
            with formatter.section(heading):
                formatter.write_dl(lines)


class Group(click.Group):
    """A command with commands below it, which are listed as they were added."""

    def __init__(self, name: str, help: str, epilog: str | None = None) -> None:
        super().__init__(name, help=help, epilog=epilog, no_args_is_help=True, context_settings=_SETTINGS)

    def add(self, name: str, epilog: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Adds a function as the command with that name, and leaves it callable."""

        def added(function: Callable[..., Any]) -> Callable[..., Any]:
            self.add_command(command(name, function, epilog))
            return function

        return added

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the help text."""
        return [*self.commands]

    def panel_of(self, name: str) -> str:
        """The heading that a command is below."""
        return "Commands"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command, unshortened."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            found = self.get_command(ctx, name)
            assert found is not None, name
            panels.setdefault(self.panel_of(name), []).append((name, found.get_short_help_str(_SENTENCE)))
        for heading, lines in panels.items():
            with formatter.section(heading):
                formatter.write_dl(lines)


def command(name: str, function: Callable[..., Any], epilog: str | None = None) -> Command:
    """The command that calls the function."""
    hints = get_type_hints(function, include_extras=True)
    params: list[click.Parameter] = []
    groups: dict[str, type] = {}
    for each in inspect.signature(function).parameters.values():
        kind = hints[each.name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            groups[each.name] = kind
            params += _params(kind)
        else:
            params.append(_param(each, hints[each.name]))

    def call(**values: Any) -> Any:
        # click returns tuples, and an empty one for an option that is not given.
        values = {key: [*value] or None if isinstance(value, tuple) else value for key, value in values.items()}
        for key, group in groups.items():
            values[key] = group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
        return function(**values)

    return Command(
        name,
        callback=call,
        params=params,
        help=_prose(inspect.getdoc(function) or ""),
        epilog=epilog,
        context_settings=_SETTINGS,
    )


def _params(group: Callable[..., Any]) -> list[click.Parameter]:
    """The parameters made from the fields of a dataclass."""
    hints = get_type_hints(group, include_extras=True)
    return [_param(each, hints[each.name]) for each in inspect.signature(group).parameters.values()]


def _param(parameter: inspect.Parameter, hint: Any) -> click.Parameter:
    kind, said = get_args(hint)
    required = parameter.default is inspect.Parameter.empty
    # For click an explicit None is a value, even of a required parameter.
    default: dict[str, Any] = {} if required else {"default": parameter.default}
    kind = _without_none(kind)
    several = get_origin(kind) is list
    if several:
        (kind,) = get_args(kind)
    if isinstance(said, Argument):
        shown = (said.metavar or str(parameter.name).upper()) + ("..." if several else "")
        return click.Argument(
            [parameter.name],
            type=_type(kind, said.min, said.max, said.path),
            required=required,
            **default,
            nargs=-1 if several else 1,
            metavar=shown if required else f"[{shown}]",
            help=said.help,
            shell_complete=said.complete,
        )
    if not isinstance(said, Option):
        raise TypeError(f"{parameter.name} has neither Option nor Argument")
    if said.default_factory is not None:
        default = {"default": said.default_factory}
    elif several:
        default = {}
    flag: dict[str, Any] = {"is_flag": True} if kind is bool else {"type": _type(kind, said.min, said.max, said.path)}
    option = _Option(
        [parameter.name, *said.names],
        help=said.help,
        required=required and said.default_factory is None,
        multiple=several,
        metavar=said.metavar,
        envvar=said.envvar,
        show_envvar=said.envvar is not None,
        show_default=False if several else said.show_default,
        hidden=said.hidden,
        shell_complete=said.complete,
        **flag,
        **default,
    )
    option.panel = said.panel
    return option


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = [each for each in get_args(kind) if each is not type(None)]
    return kind


def _type(kind: Any, least: float | None, most: float | None, path: click.Path) -> click.ParamType[Any, Any]:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _Values(kind)
    if kind is int:
        return click.INT if least is most is None else click.IntRange(_whole(least), _whole(most))
    if kind is float:
        return click.FLOAT if least is most is None else click.FloatRange(least, most)
    if kind is Path:
        return path
    if kind is str:
        return click.STRING
    raise TypeError(f"no options of {kind}")


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


def _prose(doc: str) -> str:
    """A docstring as click wraps it: paragraphs are filled, lists keep their lines."""
    paragraphs: Sequence[str] = doc.split("\n\n")
    return "\n\n".join(f"\b\n{each}" if each.startswith(("- ", "    ")) else each for each in paragraphs)
