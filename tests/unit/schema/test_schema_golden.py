"""Schemas and objects get the answers that a real API server gave, to the letter."""

from typing import Any

import pytest

from support.golden_schemas import FOLDERS, differences, refusal, refused_params, resource_params

_FOLDER = FOLDERS[0]


@pytest.mark.parametrize("case", refused_params(_FOLDER))
def test_a_definition_is_refused_with_the_causes_of_the_server(case: dict[str, Any]) -> None:
    assert refusal(case) == case["causes"]


@pytest.mark.parametrize("resource", resource_params(_FOLDER))
def test_writes_get_the_answers_of_the_server(resource: dict[str, Any]) -> None:
    answers = [write["answer"] for write in resource["writes"]]
    assert "\n".join(differences(resource, answers)) == ""
