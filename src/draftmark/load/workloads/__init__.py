"""What is asked: the built-in prompts, readers for the user's own, and prompts made to measure.

Prompts are real text: random tokens may not choose a depth, since what is drafted and accepted depends on the text.
"""

from draftmark.load.files import MAX_FILE_BYTES, MAX_LINE_BYTES
from draftmark.load.workloads.builtin import DEFAULT, load_workloads
from draftmark.load.workloads.made import SharedPrefix, random_tokens, replayed, shared_prefix
from draftmark.load.workloads.own import workload_from_file
from draftmark.load.workloads.prose import Prose
from draftmark.load.workloads.sampling import forced, sampled

__all__ = [
    "DEFAULT",
    "MAX_FILE_BYTES",
    "MAX_LINE_BYTES",
    "Prose",
    "SharedPrefix",
    "forced",
    "load_workloads",
    "random_tokens",
    "replayed",
    "sampled",
    "shared_prefix",
    "workload_from_file",
]
