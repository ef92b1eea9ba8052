"""Names of devices: as drivers report them, as price lists write them, and which of them mean the same device.

A driver reports "NVIDIA H100 80GB HBM3" or "Tesla V100-SXM2-16GB", a price list has "H100" or "NVIDIA V100". A name has
a model, and may have a memory size and a form (SXM, PCIe, NVL). Names match if they agree in what both of them have.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from batchscale.errors import one_line

PROCESSORS = (
    "cpu", "x86", "amd64", "arm", "aarch", "intel", "epyc", "xeon", "ryzen", "threadripper", "neoverse", "graviton",
    "apple",
)  # fmt: skip
_MAKERS = {"nvidia", "tesla", "amd", "google", "cloud", "gpu", "instinct", "geforce", "corporation", "generation"}
_FORMS = {"sxm": "sxm", "pcie": "pcie", "pci": "pcie", "nvl": "nvl", "oam": "oam"}
_MEMORY_KINDS = re.compile(r"(hbm|gddr)\d+x?e?")
_TPU = re.compile(r"tpuv?(?P<version>\d+)(?P<kind>lite|x|p|e|i)?")
_TPU_KINDS = {("5", ""): "p", ("5", "lite"): "e", ("6", "lite"): "e", ("7", ""): "x"}
"""The names that JAX gives to TPU v5p, v5e, v6e and 7x: "TPU v5", "TPU v5 lite", "TPU v6 lite", "TPU7x"."""


@dataclass(frozen=True)
class DeviceName:
    """The parts of a name: the model, the memory in GB and the form; None if the name does not have it."""

    model: str
    memory_gb: int | None = None
    form: str | None = None

    def matches(self, other: "DeviceName") -> bool:
        """True if both may be the same device."""
        memory = None in (self.memory_gb, other.memory_gb) or self.memory_gb == other.memory_gb
        form = None in (self.form, other.form) or self.form == other.form
        return self.model == other.model and memory and form

    def shared_parts(self, other: "DeviceName") -> int:
        """Return the number of parts besides the model that both names have, and have equal."""
        memory = self.memory_gb is not None and self.memory_gb == other.memory_gb
        return memory + (self.form is not None and self.form == other.form)


def parse_device(name: str) -> DeviceName:
    """Return the parts of a device's name.

    >>> parse_device("NVIDIA A100-SXM4-80GB")
    DeviceName(model='a100', memory_gb=80, form='sxm')
    >>> parse_device("TPU v5 lite").model, parse_device("tpu-v5litepod-8").model
    ('tpuv5e', 'tpuv5e')
    """
    text = name.casefold().replace("(tm)", " ").replace("(r)", " ")
    words = [word for word in re.sub(r"[^0-9a-z]+", " ", text).split() if word not in _MAKERS]
    if "mig" in words or is_processor(name):  # a slice of a device is a device of its own
        return DeviceName("".join(words))
    if words and words[0].startswith("tpu"):
        return DeviceName(_tpu_model(words))
    size = re.search(r"(?<![0-9a-z])(\d{1,4}) ?gi?b?(?![0-9a-z])", " ".join(words))
    joined = " ".join(words) if size is None else " ".join(words).replace(size[0], " ", 1)
    model: list[str] = []
    form, memory_kind = None, ""
    for word in joined.split():
        stem = word.rstrip("0123456789")
        if word == "e" and form == "pcie":  # "PCI-E"
            continue
        if stem in _FORMS and model:
            form = _FORMS[stem]
        elif _MEMORY_KINDS.fullmatch(word):
            memory_kind = word
        elif not (word == "rtx" and re.search(r"\brtx a\d", joined)):  # "RTX A6000" is listed as "A6000"
            model.append(word)
    if model == ["h100"] and form is None and memory_kind:  # an H100 with HBM3 is an SXM module, with HBM2e a card
        form = "sxm" if memory_kind == "hbm3" else "pcie"
    return DeviceName("".join(model) or name.casefold(), None if size is None else int(size[1]), form)


def _tpu_model(words: list[str]) -> str:
    """Return "tpuv5e" for every way to write it; the number of chips of a slice is no part of the model."""
    text = "".join(word for word in words if not word.isdigit())
    match = _TPU.match(text)
    if match is None:
        return "".join(words)
    kind = match["kind"] or ""
    return f"tpuv{match['version']}{_TPU_KINDS.get((match['version'], kind), kind)}"


def device_key(name: str) -> str:
    """Return a key that is equal for all spellings of a device.

    >>> device_key("NVIDIA Tesla T4") == device_key("t4")
    True
    """
    device = parse_device(name)
    memory = None if device.memory_gb is None else f"{device.memory_gb}gb"
    return " ".join(part for part in (device.model, memory, device.form) if part)


@dataclass(frozen=True)
class DeviceMatches:
    """The timed device of each priced one: ``keys`` maps a priced name to the ``device_key`` of a timed one.

    ``ambiguous`` are sentences on names that several devices match; none of these are used.
    """

    keys: dict[str, str]
    ambiguous: tuple[str, ...] = ()


def match_devices(priced: Iterable[str], timed: Iterable[str]) -> DeviceMatches:
    """Match the names of a price list with those of step times.

    Of several priced names those with the most equal parts match. A name is ambiguous if the other side has devices
    that differ in a part which the name does not have: "A100" beside "A100 40GB" and "A100 80GB".
    """
    timed_names = {device_key(name): name for name in timed}
    partners: dict[str, list[str]] = {name: [] for name in priced}
    ambiguous = []
    for key, name in timed_names.items():
        nearest = nearest_devices(name, partners)
        if len({device_key(other) for other in nearest}) > 1:
            ambiguous.append(_ambiguous_sentence(name, "the step times", nearest, "the machines"))
            continue
        for other in nearest:
            partners[other].append(key)
    keys = {}
    for name, matching in partners.items():
        same = [key for key in matching if key == device_key(name)] or matching
        if len(same) > 1:
            timed_as = [timed_names[key] for key in same]
            ambiguous.append(_ambiguous_sentence(name, "the machines", timed_as, "the step times"))
        elif same:
            keys[name] = same[0]
    return DeviceMatches(keys, tuple(dict.fromkeys(ambiguous)))


def nearest_devices(name: str, others: Iterable[str]) -> list[str]:
    """Return the names of the same device, else those that match it and have the most parts in common with it.

    >>> nearest_devices("NVIDIA A100-SXM4-80GB", ["A100", "A100 80GB", "H100"])
    ['A100 80GB']
    """
    device = parse_device(name)
    parsed = {other: parse_device(other) for other in others}
    same = [other for other, parts in parsed.items() if parts == device]
    shared = {other: device.shared_parts(parts) for other, parts in parsed.items() if device.matches(parts)}
    return same or [other for other, number in shared.items() if number == max(shared.values())]


def _ambiguous_sentence(name: str, where: str, others: list[str], there: str) -> str:
    listed = ", ".join(f"'{one_line(other, 60)}'" for other in sorted(others)[:5])
    return (
        f"'{one_line(name, 60)}' of {where} may be {listed} of {there}. Choose one (--device), or write its memory "
        "and form in both, such as 'A100 80GB' or 'H100 PCIe'."
    )


def is_processor(device: str) -> bool:
    """True if a device is the host's processor, so that no accelerator is requested.

    >>> is_processor("x86_64"), is_processor("NVIDIA T4")
    (True, False)
    """
    text = device.casefold()
    return "gpu" not in text and any(name in text for name in PROCESSORS)
