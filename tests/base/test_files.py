"""Paths as people read them."""

from pathlib import Path

from fedopl.base.files import without_detours


def test_a_path_loses_its_detours_unless_a_link_is_on_the_way(tmp_path):
    (tmp_path / "clients" / "north").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "clients" / "link").symlink_to(tmp_path / "elsewhere" / "deep")
    direct = tmp_path / "clients" / "north" / ".." / ".." / "rows.csv"
    assert without_detours(direct) == tmp_path / "rows.csv"
    linked = tmp_path / "clients" / "link" / ".." / "rows.csv"
    assert without_detours(linked) == linked
    assert without_detours(Path("north.csv")) == Path("north.csv")
