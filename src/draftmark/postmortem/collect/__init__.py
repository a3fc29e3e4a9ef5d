"""What a host knows of a service: sources to be judged, and what could not be read, with the command that would."""

from draftmark.postmortem.collect.containers import collect_container
from draftmark.postmortem.collect.gathering import Collected
from draftmark.postmortem.collect.jobs import collect_job
from draftmark.postmortem.collect.pods import collect_pod
from draftmark.postmortem.collect.unit import collect_unit

__all__ = ["Collected", "collect_container", "collect_job", "collect_pod", "collect_unit"]
