"""Fields that hold an integer or a percentage of something (`maxUnavailable`, `partition`).

Only the text form `<integer>%` is a percentage; a number in quotes is refused, as
`intstr.GetScaledValueFromIntOrPercent` does.
"""

from kthena.machinery.gotext import parse_int, quote


class IntOrPercentError(ValueError):
    """A value that is neither an integer nor a percentage; the message is apimachinery's."""


def parse_percent(text: str) -> int:
    """The number before the percent sign; it may have a sign of its own.

    Raises:
        IntOrPercentError: the text is no percentage, or its number is beyond 64 bits.
    """
    if not text.endswith("%"):
        raise IntOrPercentError(
            "invalid value for IntOrString: invalid type: string is not a percentage"
        )
    number = text[:-1]
    try:
        return parse_int(number)
    except ValueError as error:
        raise IntOrPercentError(
            f"invalid value for IntOrString: invalid value {quote(text)}: strconv.Atoi: {error}"
        ) from None


def scale(value: int | str, total: int, *, round_up: bool) -> int:
    """The value itself where it is an integer, else that percentage of `total`, rounded as asked.

    Raises:
        IntOrPercentError: a text that is no percentage.
    """
    if isinstance(value, int):
        return value
    product = parse_percent(value) * total
    return -(-product // 100) if round_up else product // 100
