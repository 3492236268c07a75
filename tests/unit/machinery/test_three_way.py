from kthena.machinery.three_way import last_applied, three_way_merge_patch, with_last_applied


def test_a_field_of_another_writer_is_left_alone() -> None:
    assert (
        three_way_merge_patch(
            {"spec": {"a": 1}}, {"spec": {"a": 1}}, {"spec": {"a": 1, "b": 2}, "status": {"x": 1}}
        )
        == {}
    )


def test_a_field_that_is_wanted_no_more_is_removed() -> None:
    patch = three_way_merge_patch(
        {"spec": {"a": 1, "b": 2}}, {"spec": {"a": 1}}, {"spec": {"a": 1, "b": 2, "c": 3}}
    )

    assert patch == {"spec": {"b": None}}


def test_drift_from_what_is_wanted_is_set_back() -> None:
    patch = three_way_merge_patch(
        {"spec": {"replicas": 2}}, {"spec": {"replicas": 2}}, {"spec": {"replicas": 5}}
    )

    assert patch == {"spec": {"replicas": 2}}


def test_lists_are_replaced_as_a_whole() -> None:
    patch = three_way_merge_patch({}, {"spec": {"l": [1]}}, {"spec": {"l": [1, 2]}})

    assert patch == {"spec": {"l": [1]}}


def test_true_is_not_one() -> None:
    assert three_way_merge_patch({}, {"a": True}, {"a": 1}) == {"a": True}


def test_a_map_that_appears_in_place_of_a_scalar_is_set() -> None:
    assert three_way_merge_patch({}, {"a": {"b": 1}}, {"a": "x"}) == {"a": {"b": 1}}


def test_an_unwanted_null_makes_no_patch() -> None:
    assert three_way_merge_patch({}, {"a": None}, {}) == {}


def test_what_was_applied_comes_back_without_the_annotation() -> None:
    obj = {"kind": "X", "metadata": {"name": "x", "annotations": {"note": "1"}}, "spec": {"a": 1}}

    stored = with_last_applied(obj)

    assert last_applied(stored) == obj
    assert last_applied(with_last_applied(stored)) == obj
    assert obj["metadata"] == {"name": "x", "annotations": {"note": "1"}}


def test_a_broken_annotation_counts_as_none() -> None:
    broken = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{"}}
    }

    assert last_applied(broken) == {}
    assert last_applied({}) == {}
