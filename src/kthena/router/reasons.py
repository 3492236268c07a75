"""Why a request ended as it did, in one word.

The same word stands in the reply header `x-kthena-reason`, in the access log and in the metric label
`error_type`, so that a client's report, a log line and a graph are found by one search. Words that
Kthena writes keep their spelling, since dashboards select by them.
"""

from enum import Enum

REASON_HEADER = b"x-kthena-reason"
SUCCESS = "successful_request"
"""The metric label of a request that has no reason to name."""


class Reason(Enum):
    """Why a request failed: the word, and the `type` of its error as OpenAI's clients know it."""

    REQUEST_PARSING = ("request_parsing", "invalid_request_error")
    BODY_TOO_LARGE = ("body_too_large", "invalid_request_error")
    REQUEST_TIMEOUT = ("request_timeout", "invalid_request_error")
    PATH_NOT_FOUND = ("path_not_found", "invalid_request_error")
    ROUTE_NOT_FOUND = ("route_not_found", "invalid_request_error")
    NOT_SUPPORTED = ("not_supported", "invalid_request_error")
    POD_DISCOVERY = ("pod_discovery", "server_error")
    PD_ROLE_MISSING = ("pd_role_missing", "server_error")
    PROXY = ("proxy", "server_error")
    UPSTREAM_TIMEOUT = ("upstream_timeout", "server_error")
    UPSTREAM_RESPONSE = ("upstream_response", "server_error")
    UPSTREAM_ABORTED = ("upstream_aborted", "server_error")
    CLIENT_CLOSED = ("client_closed", "invalid_request_error")
    DRAINING = ("draining", "server_error")
    OVERLOADED = ("overloaded", "server_error")
    INTERNAL = ("internal", "server_error")

    @property
    def word(self) -> str:
        """The word that reaches header, log and metric."""
        return self.value[0]

    @property
    def error_type(self) -> str:
        """The `error.type` of the reply."""
        return self.value[1]
