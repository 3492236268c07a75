from collections.abc import Callable
from typing import Any

import pytest

from kthena.machinery import names
from support.golden import golden_params

CHECKS: dict[str, Callable[[str], list[str]]] = {
    "dns1123_label": names.check_dns1123_label,
    "dns1123_subdomain": names.check_dns1123_subdomain,
    "dns1035_label": names.check_dns1035_label,
    "qualified_name": names.check_qualified_name,
    "label_value": names.check_label_value,
    "port_name": names.check_port_name,
    "env_var_name": names.check_env_var_name,
    "config_map_key": names.check_config_map_key,
    "path_segment": names.check_path_segment,
}


@pytest.mark.parametrize("row", golden_params("names", "in"))
def test_names_get_the_messages_of_apimachinery(row: dict[str, Any]) -> None:
    found = {rule: check(row["in"]) for rule, check in CHECKS.items()}
    assert found == {rule: row.get(rule, []) for rule in CHECKS}
