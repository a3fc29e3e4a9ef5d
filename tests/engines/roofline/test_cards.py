"""Cards by name, and what their figures must have in common."""

from __future__ import annotations

import pytest

from draftmark.engines.cards import card_of, cards, majors_of, names_with_memory
from draftmark.engines.sglang.memory import cards as memory
from draftmark.errors import UsageError


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200 nvl"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100 pcie"),
        ("NVIDIA H100 NVL", "h100 nvl"),
        ("NVIDIA GH200 480GB", "gh200 480gb"),
        ("NVIDIA GH200", "gh200"),
        ("NVIDIA A100-SXM4-80GB", "a100 80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100 40gb"),
        ("NVIDIA A100 80GB PCIe", "a100 80gb pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100 40gb"),
        ("a800 40gb", "a800 40gb"),
        ("NVIDIA A800-SXM4-80GB", "a800"),
        ("h100 96gb", "h100 96gb"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H20-3e", "h20 3e"),
        ("rtx-pro-6000", "rtx pro 6000"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA GeForce RTX 4090", "rtx 4090"),
        ("NVIDIA GeForce RTX 5090", "rtx 5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx pro 6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx pro 6000"),
        ("AMD Instinct MI300X", "mi300x"),
        ("h200", "h200"),
    ],
)
def test_the_names_that_drivers_print(name: str, key: str) -> None:
    card = card_of(name)
    assert card is not None
    assert card.name == key


@pytest.mark.parametrize("name", [
        "", "llvmpipe", "NVIDIA GeForce GTX 1080", "NVIDIA H2000", "80GiB", "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM-64GB-custom 64GB h100", "h200 80gb", "GRID A100-10C",
    ],
)  # fmt: skip
def test_a_card_that_is_not_known_is_none(name: str) -> None:
    assert card_of(name) is None


def test_each_card_has_a_source_and_plausible_figures() -> None:
    """The balance of operations and bytes of all of these lies between 30 and 500 in 16 bits, if both are dense."""
    for card in cards().values():
        assert card.source
        assert 30 < card.peaks["half"] / card.bandwidth < 500, card.name
        for narrow in ("fp8", "int8"):
            assert card.peaks.get(narrow, 2 * card.peaks["half"]) >= 1.9 * card.peaks["half"], card.name


def test_memory_by_the_same_names() -> None:
    names = ("NVIDIA H20-3e", "a800-40gb", "h100 96gb", "rtx-pro-6000")
    assert [memory.gpu_of(name).total_mib for name in names] == [143_771, 40_960, 97_871, 97_887]
    for name in names_with_memory():
        assert memory.gpu_of(name.upper()).total_mib == cards()[name].mib
    for name in ("a100", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "h200 80gb"):
        with pytest.raises(UsageError, match="neither a known card nor a size"):
            memory.gpu_of(name)


def test_generations_by_memory() -> None:
    assert majors_of(143_771) == {9}
    assert majors_of(183_359) == {10}
    assert majors_of(1) == frozenset()


def test_what_a_card_lacks_is_computed_wider() -> None:
    a100, h200 = cards()["a100"], cards()["h200"]
    assert a100.peak("fp4") == a100.peak("fp8") == a100.peak("half")
    assert h200.peak("fp4") == h200.peak("fp8") == 2 * h200.peak("half")
