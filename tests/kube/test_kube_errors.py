import pytest

from kthena.kube import errors


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "ServerTimeout", errors.ServerTimeout),
        (503, "ServiceUnavailable", errors.ServiceUnavailable),
        (504, "Timeout", errors.ServerTimeout),
        (500, "InternalError", errors.ApiError),
        (415, "UnsupportedMediaType", errors.ApiError),
    ],
)
def test_a_status_becomes_the_error_of_its_code_and_reason(
    status: int, reason: str, kind: type[errors.ApiError]
) -> None:
    body = {"kind": "Status", "code": status, "reason": reason, "message": "why"}

    error = errors.error_from_reply(status, body, request="GET /x")

    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (status, reason, "why")
    assert str(error) == f"GET /x: {status} {reason}: why"


def test_a_body_that_is_no_status_is_not_kept() -> None:
    error = errors.error_from_reply(502, "<html>password=hunter2</html>", request="GET /x")

    assert "hunter2" not in repr(vars(error)) + str(error)
    assert error.status == 502
    assert error.message == "the server replied 502 without a Status object"


def test_a_secret_returned_with_an_error_code_is_not_kept() -> None:
    secret = {"kind": "Secret", "data": {"password": "aHVudGVyMg=="}}

    error = errors.error_from_reply(500, secret, request="GET /x")

    assert "aHVudGVyMg" not in repr(vars(error))


def test_not_found_without_a_status_is_still_not_found() -> None:
    error = errors.error_from_reply(404, None, request="GET /apis/x/v1/ys")

    assert isinstance(error, errors.NotFound)


def test_texts_are_cut_to_256_characters() -> None:
    body = {
        "kind": "Status",
        "message": "m" * 1000,
        "details": {"causes": [{"field": "spec.x", "message": "c" * 1000, "reason": "r"}]},
    }

    error = errors.error_from_reply(422, body, request="POST /x")

    assert len(error.message) == 256
    assert error.message.endswith("…")
    assert len(error.causes[0]["message"]) == 256
    assert error.causes[0]["field"] == "spec.x"


def test_the_header_retry_after_counts_more_than_the_details() -> None:
    body = {"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 7}}

    assert errors.error_from_reply(429, body, request="x", retry_after_s=2.0).retry_after_s == 2.0
    assert errors.error_from_reply(429, body, request="x").retry_after_s == 7.0
    assert errors.error_from_reply(429, {"kind": "Status"}, request="x").retry_after_s is None


def test_a_redirect_is_an_error_that_says_so() -> None:
    error = errors.error_from_reply(302, None, request="GET /x")

    assert error.message == "the server replied 302; redirects are not followed"


def test_no_reply_is_an_error_of_the_api_without_a_status() -> None:
    error = errors.ConnectionFailed("cannot connect", request="GET /x")

    assert isinstance(error, errors.ApiError)
    assert error.status == 0
    assert str(error) == "GET /x: ConnectionFailed: cannot connect"
