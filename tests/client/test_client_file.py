import stat

import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from fedopl.client.client_file import read_client, read_clients
from tiny_study import STRONG

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


PARQUET = 'file = "rows.parquet"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{PARQUET}\n[engine]\nkind = 'ray'",
            "engine.kind: came 'ray'.* dask, spark",
        ),
        (f"{PARQUET}\n[engine]\nworkers = 2", r"engine.kind"),
        (f"{PARQUET}\n[engine]\nkind = 'dask'\nworkers = 0", r"engine.workers"),
        (
            f"{PARQUET}\n[engine]\nkind = 'dask'\nworkers = 1\naddress = 'x'",
            "leave out one of both",
        ),
        ('file = "rows.csv"\n[engine]\nkind = "dask"', "workers read rows on disk, and only those"),
        (f'{PARQUET}\nrows = "memory"\n[engine]\nkind = "dask"', "workers read rows on disk"),
    ],
)
def test_workers_are_of_a_known_kind_and_have_rows_on_disk(tmp_path, text, message):
    with pytest.raises(fedopl.OptionError, match=message):
        read_client(client_in(tmp_path / "north", f"[data]\n{text}\n"))


def engine_of(folder, section, kind="dask"):
    return read_client(
        client_in(folder, f"[data]\n{PARQUET}\n[engine]\nkind = '{kind}'\n{section}")
    )


def test_workers_that_cannot_be_had_are_said_with_the_line_of_the_file(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    away = engine_of(tmp_path / "north", 'address = "tcp://127.0.0.1:9"\nwait = 0.3\n')
    with pytest.raises(fedopl.OptionError, match=r"client.toml.*line 4.*no Dask scheduler.* 0.3 s"):
        away.read(SCHEMA)
    monkeypatch.setattr("fedopl.client.cluster.workers.find_spec", lambda _: None)
    with pytest.raises(fedopl.OptionError, match=r"client.toml.*pip install 'fedopl\[dask\]'"):
        engine_of(tmp_path / "south", "wait = 0.4\n").read(SCHEMA)
    with pytest.raises(fedopl.OptionError, match=r"client.toml.*pip install 'fedopl\[spark\]'"):
        engine_of(tmp_path / "west", "wait = 0.4\n", "spark").read(SCHEMA)
    monkeypatch.setattr("fedopl.client.cluster.workers.find_spec", lambda _: "found")
    with pytest.raises(fedopl.OptionError, match=r"client.toml.*line 4.*'lake' is no address of a"):
        engine_of(tmp_path / "east", 'address = "lake"\n', "spark").read(SCHEMA)


def test_a_client_with_workers_has_its_rows_on_disk(tmp_path, monkeypatch):
    class Workers:
        def check(self, file, n_bytes):
            assert file.stat().st_size == n_bytes

    found = []

    def shared(*asked):
        found.append(asked)
        return Workers()

    monkeypatch.setenv("LAKE", "tls://lake:8786")
    monkeypatch.setattr("fedopl.client.client_file.shared_engine", shared)
    client = engine_of(tmp_path / "north", 'address = "${LAKE}"\n')
    columns = {"age": [30.0, 40.0], "sex": ["f", "m"], "arm": ["drug", "placebo"], "gain": [1, 0]}
    parquet.write_table(pa.table(columns), tmp_path / "north" / "rows.parquet")
    data = client.read(SCHEMA)
    assert data.is_on_disk
    assert isinstance(data.engine, Workers)
    assert found == [("dask", "tls://lake:8786", None, 30.0)]


def test_clients_are_found_in_folders_and_have_names_of_their_own(tmp_path):
    with pytest.raises(fedopl.OptionError, match="expected a folder for each client"):
        read_clients(tmp_path)
    text = 'name = "north"\n[data]\nfile = "rows.csv"\n'
    for folder in ("a", "b"):
        client_in(tmp_path / folder, text)
    assert list(read_clients(tmp_path / "a")) == ["north"]
    with pytest.raises(fedopl.OptionError, match="give each client its own"):
        read_clients(tmp_path)


# --- its secret, and the rows that a study is answered for ----------------------------------------

FILE = '[data]\nfile = "rows.csv"\n'


def test_the_secret_of_its_file_is_the_clients_and_no_other_is_made(tmp_path):
    client = read_client(client_in(tmp_path / "north", f'secret = "{STRONG}"\n{FILE}'))
    assert {client.secret(), client.secret(rehearsing=True)} == {STRONG}
    assert not client.secret_path.exists()


@pytest.mark.parametrize("secret", ["hush", "a" * 64])
def test_a_secret_that_somebody_chose_is_refused_in_one_line(secret, tmp_path):
    folder = client_in(tmp_path / "north", f'secret = "{secret}"\n{FILE}')
    with pytest.raises(fedopl.OptionError) as refused:
        read_client(folder)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{folder}/client.toml, line 1: secret: expected at least 32 random")
    assert line.endswith(f"leave it out, and run: fedopl keys {folder}")
    assert secret not in line  # it may be somebody's password


def test_a_client_without_a_secret_makes_one_and_keeps_it_to_itself(tmp_path):
    folders = [client_in(tmp_path / name, FILE) for name in ("north", "south")]
    made = [read_client(folder).secret() for folder in folders]
    assert made == [read_client(folder).secret() for folder in folders]
    assert made[0] != made[1]
    for folder in folders:
        assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600


def test_a_rehearsal_makes_no_secret_and_uses_the_one_that_is_there(tmp_path):
    client = read_client(client_in(tmp_path / "north", FILE))
    assert client.secret(rehearsing=True) == "rehearsal"
    assert not client.secret_path.exists()
    made = client.secret()
    assert client.secret(rehearsing=True) == made


STUDY = fedopl.Study(actions=SCHEMA.actions, features=("age", "sex = m"))
ONE_MORE = "age,sex,arm,gain\n30,f,drug,1\n40,m,placebo,0\n50,f,drug,1\n"


def pinned_again(folder, content, **options):
    """The rows that the study is answered for, once the file has these rows."""
    (folder / "rows.csv").write_text(content, encoding="utf-8")
    client = read_client(folder)
    return client.pinned(STUDY, client.read(SCHEMA), **options)


def test_a_study_is_answered_for_the_rows_of_its_first_answer(tmp_path):
    folder = client_in(tmp_path / "north", FILE)
    assert pinned_again(folder, ROWS).n_rows == 2
    with pytest.raises(fedopl.StudyError, match="north: its rows are not those it has answered"):
        pinned_again(folder, ONE_MORE)
    header, *rows = ROWS.splitlines()
    assert pinned_again(folder, "\n".join([header, *rows[::-1]])).n_rows == 2


def test_a_rehearsal_pins_no_rows_and_writes_nothing(tmp_path):
    folder = client_in(tmp_path / "north", FILE)
    before = sorted(folder.iterdir())
    assert pinned_again(folder, ROWS, rehearsing=True).n_rows == 2
    assert sorted(folder.iterdir()) == before
    assert pinned_again(folder, ONE_MORE).n_rows == 3
