"""Writes the status of one pod: only what differs, and only to this pod.

The whole object is sent back with its resource version, so that conditions of others are never
lost, and a newer object is read again first. The writer also keeps the pod as it was last seen, be
it by a watch or by its own write.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kthena.api.kubernetes import PODS
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock, wait_for
from kthena.kube.errors import ApiError, Conflict, NotFound
from kthena.local.node.notifier import Notifier
from kthena.local.node.podstatus import PodRecord, build_status, not_running_status
from kthena.machinery.objects import Object, key_of, resource_version_of, uid_of
from kthena.telemetry.logging import get_logger

_log = get_logger("node.status")

_RETRY_S: Final = 1.0


class StatusWriter:
    """The status of one pod.

    Mutable state: the pod as last seen, and whether nothing more is to be written.
    """

    def __init__(
        self, pod: Object, client: KubeClient, clock: Clock, record: Callable[[], PodRecord]
    ) -> None:
        self.pod = pod
        self._client = client
        self._clock = clock
        self._record = record
        self._muted = False

    def update(self, pod: Object) -> bool:
        """Take a version of the pod that was seen; False for one older than what is known."""
        if _version(pod) < _version(self.pod):
            return False
        self.pod = pod
        return True

    async def follow(self, changed: Notifier, complete: Callable[[], bool]) -> None:
        """Write after each change, until `complete` says that nothing more will come.

        Raises:
            NotFound: the pod is gone, or another has its name.
        """
        async for _ in changed.each():
            # Asked before writing: a change that comes meanwhile is written by the next round.
            last = complete()
            await self._write_patiently()
            if last:
                return

    def mute(self) -> None:
        """Write no more of what happens to the containers."""
        self._muted = True

    async def say_not_running(self, reason: str, message: str) -> None:
        """Say that nothing of the pod runs, if the API server answers in a moment."""
        self.mute()
        status = not_running_status(self.pod, reason, message, self._clock.now())
        try:
            await wait_for(self._clock, self._send(status), _RETRY_S)
        except (ApiError, TimeoutError) as error:
            _log.debug(
                "last pod status is not written", pod=str(key_of(self.pod)), error=str(error)
            )

    async def _write_patiently(self) -> None:
        while True:
            try:
                await self._write()
            except (Conflict, NotFound):
                await self._read_again()
            except ApiError as error:
                pod = str(key_of(self.pod))
                _log.warning("pod status is not written yet", pod=pod, error=str(error))
                await self._clock.sleep(_RETRY_S)
            else:
                return

    async def _write(self) -> None:
        wanted = build_status(self.pod, self._record(), self._clock.now())
        old = self.pod.get("status") or {}
        if not self._muted and any(old.get(name) != value for name, value in wanted.items()):
            await self._send(wanted)

    async def _send(self, changes: Mapping[str, Any]) -> None:
        """Send the status with changes; null removes a field."""
        status = {**(self.pod.get("status") or {}), **changes}
        status = {name: value for name, value in status.items() if value is not None}
        pod = {**self.pod, "status": status}
        self.update(await self._client.update(PODS, pod, subresource="status"))

    async def _read_again(self) -> None:
        key = key_of(self.pod)
        pod = await self._client.get(PODS, key.name, key.namespace)
        if uid_of(pod) != uid_of(self.pod):
            raise NotFound(404, "NotFound", f"pod {key} was replaced by another of its name")
        self.update(pod)


def _version(pod: Object) -> int:
    """The resource version as a number; a server whose versions are none is taken at its word."""
    text = resource_version_of(pod)
    return int(text) if text.isdecimal() else 0
