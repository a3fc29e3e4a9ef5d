"""A config.json's fields, asked for by name and checked. What it leaves out is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from draftmark.errors import BadInputError

# Above any model, and low enough that a wrong file cannot make us count for ever.
_MOST = 2**40
MOST_LAYERS = 4096


class UnknownArchitectureError(BadInputError):
    """A model of a class whose parts are not known here: no number is made up for it."""


class Fields:
    """The fields of one text model.

    Args:
        config: Its part of config.json.
        defaults: Values of its configuration class, for fields that the file leaves out.
        assumptions: Collects, in words, what was taken from elsewhere than the file.
    """

    def __init__(
        self, config: Mapping[str, object], defaults: Mapping[str, object], assumptions: list[str]
    ) -> None:
        self._config = config
        self._defaults = defaults
        self._assumptions = assumptions
        self._told: set[str] = set()

    def assume(self, words: str) -> None:
        """Writes down an assumption, once."""
        if words not in self._told:
            self._told.add(words)
            self._assumptions.append(words)

    def raw(self, *names: str) -> object:
        """The first of these fields that is there and not null; else the class's default; else None."""
        for name in names:
            if self._config.get(name) is not None:
                return self._config[name]
        for name in names:
            if name in self._defaults:
                value = self._defaults[name]
                self.assume(f"{name} is not in config.json: {value}, its class's default")
                return value
        return None

    def maybe(self, *names: str, most: int = _MOST) -> int | None:
        """A whole number from 0 to `most`, or None when none of the fields is there."""
        value = self.raw(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise BadInputError(
                f"config.json: {names[0]} is not a usable whole number",
                evidence=(f"{names[0]}: {str(value)[:80]}",),
                next_step="check that this is the config.json of the model that is served",
            )
        return value

    def optional(self, name: str, *, most: int = _MOST) -> int:
        """A whole number; 0 when the file says null, and, written down, when it says nothing."""
        value = self.maybe(name, most=most)
        if value is None and name not in self._config:
            self.assume(f"{name} is not in config.json: none")
        return value or 0

    def need(self, *names: str, most: int = _MOST) -> int:
        """A whole number ≥ 1 that nothing can do without."""
        value = self.maybe(*names, most=most)
        if value is None:
            raise BadInputError(
                f"config.json has no {names[0]}: the model's size cannot be told",
                evidence=(f"fields there: {', '.join(sorted(map(str, self._config)))[:200]}",),
                next_step="give the config.json that lies beside the model's weights",
            )
        if value < 1:
            raise BadInputError(f"config.json: {names[0]} is {value}", next_step="check the file")
        return value

    def flag(self, *names: str) -> bool:
        """Whether a switch is on; one that is nowhere is off, and that is written down."""
        value = self.raw(*names)
        if value is None and not any(name in self._config for name in names):
            self.assume(f"{names[0]} is not in config.json: off")
        return bool(value)

    def layers(self, *names: str) -> int:
        """A number of layers, within reason: by default the model's."""
        return self.need(*(names or ("num_hidden_layers", "n_layer")), most=MOST_LAYERS)

    def names(self, name: str, count: int) -> list[str] | None:
        """A list of `count` words, one a layer, or None."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count or not all(isinstance(each, str) for each in value):
            raise BadInputError(
                f"config.json: {name} does not name each of the {count} layers", next_step="check the file"
            )
        return list(value)

    def numbers(self, name: str) -> list[int] | None:
        """A list of whole numbers, or None."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
            raise BadInputError(f"config.json: {name} is no list of whole numbers", next_step="check the file")
        return list(value)

    def part(self, name: str) -> Fields:
        """The fields under one of them, which has to be an object."""
        return Fields(mapping(self.raw(name), name), {}, self._assumptions)


def mapping(value: object, name: str) -> Mapping[str, object]:
    """`value` as the object that it has to be."""
    if not isinstance(value, Mapping):
        raise BadInputError(f"config.json: {name} is missing or no object", next_step="check the file")
    return value


def words(value: object) -> tuple[str, ...]:
    """A list of words; what is no word in it is left out."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return ()
    return tuple(each for each in value if isinstance(each, str))
