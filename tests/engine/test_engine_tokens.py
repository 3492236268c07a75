import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.local.engine import tokens
from kthena.local.engine.generation import Sampling, generate

TEXTS = st.one_of(
    st.text(),
    st.text(alphabet=st.characters(categories=["Cs", "Ll", "So"])),
    st.lists(st.sampled_from([*tokens.WORDS, " ", ".", "\n", "é", "\ud800"])).map("".join),
)


@given(TEXTS)
def test_detokenize_is_the_inverse_of_tokenize(text: str) -> None:
    ids = tokens.tokenize(text)

    assert tokens.detokenize(ids) == text
    assert all(0 <= token < tokens.VOCABULARY_SIZE for token in ids)


@given(TEXTS)
def test_every_token_adds_a_piece(text: str) -> None:
    ids = tokens.tokenize(text)

    assert len(list(tokens.pieces(ids))) == len(ids)


def test_known_words_are_one_token_each() -> None:
    assert len(tokens.tokenize("Hello world. the answer")) < len("Hello world. the answer") / 2
    assert len(tokens.tokenize("the answer of the house")) == 5


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(ValueError, match="token id 999999999 is not in the vocabulary"):
        tokens.detokenize([999999999])


@given(
    st.text(max_size=50),
    st.integers(min_value=1, max_value=200),
    st.integers(min_value=0, max_value=50),
    st.booleans(),
)
def test_length_obeys_the_limits(prompt: str, limit: int, minimum: int, ignore_eos: bool) -> None:
    sampling = Sampling(limit, min_tokens=min(minimum, limit), ignore_eos=ignore_eos)

    answer = generate("m", prompt, sampling)

    assert min(minimum, limit) <= answer.token_count <= limit
    if ignore_eos:
        assert answer.token_count == limit
    if answer.finish_reason == "length":
        assert answer.token_count == limit


@given(st.text(max_size=50))
def test_a_shorter_limit_gives_a_prefix(prompt: str) -> None:
    whole = generate("m", prompt, Sampling(1000))
    short = generate("m", prompt, Sampling(5))

    assert whole.finish_reason == "stop"
    assert short.finish_reason == "length"
    assert whole.text.startswith(short.text)
    assert short.token_count == 5


def test_the_answer_is_a_function_of_model_prompt_and_parameters() -> None:
    base = generate("m", "p", Sampling(1000)).text

    assert generate("m", "p", Sampling(1000)).text == base
    others = [
        generate("n", "p", Sampling(1000)),
        generate("m", "q", Sampling(1000)),
        generate("m", "p", Sampling(1000, seed=7)),
        generate("m", "p", Sampling(1000, temperature=0.5)),
        generate("m", "p", Sampling(1000), index=1),
    ]
    assert base not in {other.text for other in others}
    assert len({other.text for other in others}) == len(others)


@given(st.integers(min_value=0, max_value=60), st.integers(min_value=1, max_value=8), st.booleans())
def test_a_stop_string_ends_the_answer(start: int, length: int, include: bool) -> None:
    whole = generate("m", "p", Sampling(1000)).text
    stop = whole[start : start + length]
    first = whole.find(stop)

    answer = generate("m", "p", Sampling(1000, stop=(stop, "\0"), include_stop=include))

    if not stop:
        assert answer.text == whole
        return
    assert answer.text == whole[: first + (len(stop) if include else 0)]
    assert answer.finish_reason == "stop"
    assert answer.stop_reason == stop


def test_a_stop_string_before_the_minimum_does_not_count() -> None:
    whole = generate("m", "p", Sampling(1000))
    stop = whole.pieces[0]
    answer = generate("m", "p", Sampling(1000, stop=(stop,), min_tokens=whole.token_count))

    assert answer.text == whole.text


def test_a_stop_token_ends_the_answer() -> None:
    whole = generate("m", "p", Sampling(1000))
    token = tokens.tokenize(whole.text)[4]

    answer = generate("m", "p", Sampling(1000, stop_token_ids=(token,)))

    assert answer.finish_reason == "stop"
    assert answer.stop_reason == token
    assert answer.token_count <= 5
