"""Libraries of Kubernetes: versions, named formats, and checks of what a user may do."""

from typing import Any

import pytest

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.environment import compile_expression
from kthena.machinery.cel.library.authorization import (
    AUTHORIZER,
    Attributes,
    Authorizer,
    Decision,
)
from kthena.machinery.cel.values import CelError


def evaluate(expression: str) -> Any:
    return compile_expression(expression, {}).evaluate({})


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("1.2.3", "1.2.3+build", 0),
        ("1.2.3", "1.2.10", -1),
        ("10.0.0", "9.9.9", 1),
        ("1.2.3", "1.2.3-alpha", 1),
        ("1.2.3-alpha", "1.2.3-alpha.1", -1),
        ("1.2.3-2", "1.2.3-10", -1),
        ("1.2.3-10", "1.2.3-a", -1),
    ],
)
def test_versions_are_ordered(left: str, right: str, order: int) -> None:
    assert evaluate(f"semver('{left}').compareTo(semver('{right}'))") == order
    assert evaluate(f"semver('{left}') == semver('{right}')") is (order == 0)
    assert evaluate(f"semver('{left}').isLessThan(semver('{right}'))") is (order < 0)
    assert evaluate(f"semver('{right}').isLessThan(semver('{left}'))") is (order > 0)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "Version string empty"),
        ("1.2", "No Major.Minor.Patch elements found"),
        ("v1.2.3", 'Invalid character(s) found in major number "v1"'),
        ("1.02.3", 'Minor number must not contain leading zeroes "02"'),
        ("1.2.", 'strconv.ParseUint: parsing "": invalid syntax'),
        ("1.2.3-", "Prerelease is empty"),
        ("1.2.3-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.2.3-a_", 'Invalid character(s) found in prerelease "a_"'),
        ("1.2.3+a..b", "Build meta data is empty"),
    ],
)
def test_what_is_no_version(text: str, mistake: str) -> None:
    with pytest.raises(CelError) as failure:
        evaluate(f"semver('{text}')")
    assert str(failure.value) == mistake
    assert evaluate(f"isSemver('{text}')") is False


def test_versions_may_be_normalized() -> None:
    parts = [evaluate(f"semver('v01.2', true).{name}()") for name in ("major", "minor", "patch")]
    assert parts == [1, 2, 0]
    assert evaluate("isSemver('v1.2', false)") is False
    with pytest.raises(CelError, match="short version cannot contain PreRelease"):
        evaluate("semver('1.2-x', true)")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("dns1123Label", "a-b", "a.b"),
        ("dns1123Subdomain", "a.b", "a_b"),
        ("dns1035Label", "a1", "1a"),
        ("dns1123LabelPrefix", "a-", "-a"),
        ("dns1123SubdomainPrefix", "a.b-", "a.b."),
        ("dns1035LabelPrefix", "a-", "1a-"),
        ("qualifiedName", "a.b/C_d", "a/b/c"),
        ("labelValue", "", "-"),
        ("uri", "https://a/b", "a b"),
        ("uuid", "550e8400-e29b-41d4-a716-446655440000", "550e8400"),
        ("byte", "YQ==", "YQ="),
        ("date", "2024-02-29", "2023-02-29"),
        ("datetime", "2024-01-02T03:04:05Z", "2024-01-02"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert evaluate(f"format.{name}().validate('{good}').hasValue()") is False
    assert evaluate(f"format.{name}().validate('{bad}').value().size()") >= 1
    assert evaluate(f"format.named('{name}').value() == format.{name}()") is True
    assert evaluate("format.named('nosuch').hasValue()") is False


def test_an_authorizer_is_asked() -> None:
    asked = []

    def authorize(attributes: Attributes) -> Decision:
        asked.append(attributes)
        return Decision(allowed=attributes.verb == "get", reason="why")

    def check(expression: str) -> Any:
        program = compile_expression(expression, {"authorizer": AUTHORIZER})
        return program.evaluate({"authorizer": Authorizer(authorize, "me")})

    pods = "authorizer.group('').resource('pods')"
    assert check(f"{pods}.subresource('log').namespace('n').name('p').check('get').allowed()")
    assert not check("authorizer.path('/x').check('post').allowed()")
    assert check("authorizer.serviceAccount('n', 's').path('/').check('get').reason()") == "why"
    assert check(f"{pods}.fieldSelector('a=b').labelSelector('c').check('get').errored()") is False
    assert asked == [
        Attributes("me", "get", "", "", "pods", "log", "n", "p"),
        Attributes("me", "post", "/x"),
        Attributes("system:serviceaccount:n:s", "get", "/"),
        Attributes("me", "get", resource="pods", field_selector="a=b", label_selector="c"),
    ]
    for expression, mistake in (
        ("authorizer.path(' ')", "path must not be empty"),
        ("authorizer.group('').resource('')", "resource must not be empty"),
        ("authorizer.serviceAccount('n', 'S')", "Invalid service account name"),
        ("authorizer.serviceAccount('a.b', 's')", "Invalid service account namespace"),
    ):
        with pytest.raises(CelError, match=mistake):
            check(expression)
    assert compile_expression(pods, {"authorizer": AUTHORIZER}).type == types.named(
        "kubernetes.authorization.ResourceCheck"
    )
