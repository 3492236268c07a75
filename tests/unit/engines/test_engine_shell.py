import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.engines.shell import find_commands

ENV = {"PORT": "8000", "MODEL": "m", "EMPTY": "", "ARGS": "--a 1  --b 2", "RANK": "0"}


def words_of(script: str, *arguments: str) -> list[tuple[str, ...]]:
    return [command.words for command in find_commands(script, ENV, arguments)]


# Each script runs `engine` with some words; bash runs it too, as the judge.
SCRIPTS = {
    "plain": "engine a b",
    "continuation": "engine \\\n  --port 1 \\\n  --x",
    "quotes": """engine 'a b' "c d" e\\ f 'g"h' "i'j" k'l'm"n\"""",
    "escapes in double quotes": r'engine "a\"b" "c\\d" "e\$f" "g\h"',
    "variable": "engine $MODEL ${PORT} x$MODEL-${PORT}y",
    "variable in double quotes": 'engine "$ARGS" "a${EMPTY}b"',
    "variable in single quotes": "engine '$MODEL'",
    "splitting": "engine $ARGS x$ARGS",
    "empty words": "engine $EMPTY \"$EMPTY\" '' x",
    "absent variable": "engine ${ABSENT} ${ABSENT:-d} ${PORT:-d} ${ABSENT:-$MODEL}",
    "assignment": "X=1; Y=$X-2\nengine $X $Y",
    "assignment with quotes": 'X="a b" Y=\'c\'; engine "$X" $Y',
    "export": "export X=1 Y=$MODEL; engine $X $Y",
    "unset": 'unset PORT; engine "$PORT"',
    "comment": "# engine no\nengine a # b\nengine c#d",
    "separators": "engine a; engine b && engine c || engine d\nengine e & wait",
    "pipe": "engine a | cat; echo x | cat",
    "redirections": "engine a 2> /dev/null b; engine c 2>&1 d; engine e </dev/null >>/dev/stdout",
    "subshell": "(X=1; engine $X); engine x$X",
    "group": "{ engine a; engine b; }",
    "if true": 'if [ "$RANK" = "0" ]; then engine a; else engine b; fi',
    "if false": 'if [ "$RANK" != "0" ]; then engine a; elif [ $PORT -eq 8000 ]; then engine c; fi',
    "else": "if false; then engine a\nelse\n  engine b\nfi",
    "negation": "if ! false; then engine a; fi; ! true || engine b",
    "and or": '[ -n "$MODEL" ] && engine a || engine b; [ -z "$MODEL" ] && engine c || engine d',
    "numbers": "[ $PORT -gt 7999 ] && engine a; [ $PORT -le 10 ] || engine b",
    "double brackets": "[[ $RANK == 0 && -n $MODEL ]] && engine a; [[ $MODEL == m* ]] && engine b",
    "test with operators": '[ "$RANK" = 1 -o "$MODEL" = m ] && engine a; test x = x -a y = z || engine b',
    "nested if": "if true; then if false; then engine a; else engine b; fi; engine c; fi",
    "case": "case $MODEL in x|y) engine a;; m) engine b;; *) engine c;; esac; engine d",
    "case default": "case $MODEL in\n  x)\n    engine a\n    ;;\n  *)\n    engine c\nesac",
    "for": "for x in a; do engine $x; done",
    "while": "while false; do true; done; engine a",
    "exit": "engine a; exit 0; engine b",
    "exit in a branch": "if true; then engine a; exit; fi; engine b",
    "set": "set -e\nset -x; engine a",
    "here document": "cat <<EOF >/dev/null\nengine no $MODEL\nEOF\nengine a",
    "here document with tabs": "cat <<-'EOF' >/dev/null\n\tengine no\n\tEOF\nengine a",
    "here string": 'cat <<<"engine no" >/dev/null; engine a',
    "arguments": 'engine "$0" "$1" $2 "$@"',
    "json": 'engine --c \'{"a": {"b": 1}}\' --d "{\\"e\\": \\"$MODEL\\"}"',
    "function": "f() { engine a; }; f",
    "ansi quotes": "engine $'a b'",
    "words that look reserved": "engine if then done fi; engine case esac",
    "prefix assignment": "X=1 engine a",
    "trailing backslash": "engine a \\\n",
    "newline after and": "true &&\n  engine a |\n  cat",
    "dollar alone": 'engine $ "$" a$',
}
JUDGE = 'engine() { printf "<%s>" "$@"; echo; }\n'


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the judge and is not installed")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_a_script_comes_to_the_commands_that_bash_runs(script: str) -> None:
    arguments = ("zero", "one", "two words")
    judged = subprocess.run(
        ["bash", "-c", JUDGE + script, *arguments],
        env=ENV | {"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    found = [words[1:] for words in words_of(script, *arguments) if words[0] == "engine"]
    expected = [line for line in judged.stdout.splitlines() if line.startswith("<")]
    assert sorted("".join(f"<{word}>" for word in words) for words in found) == sorted(expected)


def test_what_is_not_known_goes_both_ways_and_ends_nothing() -> None:
    script = "if [ -f /ready ]; then engine a; exit 1; else engine b; fi; engine c"
    assert words_of(script) == [("engine", "a"), ("engine", "b"), ("engine", "c")]
    script = 'if [ "$(hostname)" = x ]; then engine a; else engine b; fi'
    assert [words for words in words_of(script) if words[0] == "engine"] == [
        ("engine", "a"),
        ("engine", "b"),
    ]


def test_substitutions_stay_as_they_are_written() -> None:
    assert words_of('engine --host $(hostname -i) "$(cat x)" `id -u` $((1 + 2))') == [
        ("engine", "--host", "$(hostname -i)", "$(cat x)", "`id -u`", "$((1 + 2))")
    ]


def test_a_kubernetes_reference_is_a_variable_where_it_is_known() -> None:
    assert words_of("engine $(MODEL) $(ENTRY_ADDRESS)") == [("engine", "m", "$(ENTRY_ADDRESS)")]


def test_a_command_sees_the_variables_of_its_place() -> None:
    commands = find_commands("export A=1; B=2 engine; A=3 engine", {"C": "4"})
    assert [dict(command.env) for command in commands] == [
        {"C": "4", "A": "1", "B": "2"},
        {"C": "4", "A": "3"},
    ]


@pytest.mark.parametrize(
    "script",
    ["engine a; engine 'b", "engine a; if true; then", "engine a; case x in", "engine a; )"],
)
def test_a_script_that_cannot_be_read_ends_at_the_fault(script: str) -> None:
    assert words_of(script)[0] == ("engine", "a")


@given(st.text(alphabet="ab=$(){}[]\"'\\;&|<>\n !#`if thendocsea", max_size=40))
def test_every_text_is_read_to_an_end(script: str) -> None:
    assert isinstance(words_of(script), list)
