import pytest

import fedopl
from fedopl.client.client_file import read_client, read_clients

SCHEMA = fedopl.Schema(
    numeric=["age"],
    categorical={"sex": ("f", "m")},
    action="arm",
    actions=("drug", "placebo"),
    reward="gain",
    direction="higher",
)
ROWS = "age,sex,arm,gain\n30,f,drug,1\n40,m,placebo,0\n"


def client_in(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "client.toml").write_text(text, encoding="utf-8")
    (folder / "rows.csv").write_text(ROWS, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('encoding = "utf-8"', "either file, or database and query"),
        ('file = "rows.csv"\ndatabase = "duckdb"', "a database a query"),
        ('file = "rows.csv"\nrows = "disk"', "only those of a Parquet file"),
    ],
)
def test_rows_are_in_one_place_that_fits(tmp_path, section, message):
    with pytest.raises(fedopl.OptionError, match=message):
        read_client(client_in(tmp_path / "north", f"[data]\n{section}\n"))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('[columns]\nheight = "cm"', "'height' is no column of the study; it has .*age"),
        ("[labels.age]\nold = 'very old'", "'age' is no column of labels of the study"),
    ],
)
def test_only_what_the_study_has_can_be_renamed(tmp_path, section, message):
    text = f'[data]\nfile = "rows.csv"\n{section}\n'
    with pytest.raises(fedopl.OptionError, match=message):
        read_client(client_in(tmp_path / "north", text)).read(SCHEMA)


def test_rows_stay_in_memory_where_the_file_says_so(tmp_path):
    text = '[data]\nfile = "rows.csv"\nrows = "memory"\n'
    data = read_client(client_in(tmp_path / "north", text)).read(SCHEMA)
    assert (data.n_rows, data.is_on_disk) == (2, False)


def test_clients_are_found_in_folders_and_have_names_of_their_own(tmp_path):
    with pytest.raises(fedopl.OptionError, match="expected a folder for each client"):
        read_clients(tmp_path)
    text = 'name = "north"\n[data]\nfile = "rows.csv"\n'
    for folder in ("a", "b"):
        client_in(tmp_path / folder, text)
    assert list(read_clients(tmp_path / "a")) == ["north"]
    with pytest.raises(fedopl.OptionError, match="give each client its own"):
        read_clients(tmp_path)
