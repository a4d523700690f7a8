import ssl
import tomllib

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

import fedopl
from fedopl.base.errors import OptionError, StorageError
from fedopl.demo.hospitals import three_hospitals
from fedopl.engines.flower.flower_study import write_flower_app
from fedopl.engines.network.certificates import make_certificates, make_client_key

pytestmark = pytest.mark.usefixtures("without_figures")

NAMES = ["west", "north", "south"]


@pytest.fixture
def study(tmp_path):
    return three_hospitals().write(tmp_path / "hospitals")


def test_an_app_names_its_clients_its_folder_and_this_version(study, tmp_path):
    write_flower_app(tmp_path / "app", study, NAMES, out=tmp_path / "run", deadline=30)
    content = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert content["tool"]["flwr"]["app"]["config"] == {
        "clients": "north,south,west",
        "out": str(tmp_path / "run"),
        "arrival": 120.0,
        "deadline": 30.0,
    }
    assert content["project"]["dependencies"] == [f"fedopl[flower]=={fedopl.__version__}"]


def test_an_app_carries_the_study_as_it_was_agreed_on(study, tmp_path):
    write_flower_app(tmp_path / "app", study, NAMES, out=tmp_path / "run")
    assert (tmp_path / "app" / "study.toml").read_bytes() == study.read_bytes()


def test_an_app_is_never_written_over_another(study, tmp_path):
    write_flower_app(tmp_path / "app", study, NAMES, out=tmp_path / "run")
    with pytest.raises(StorageError, match="is not empty"):
        write_flower_app(tmp_path / "app", study, NAMES, out=tmp_path / "run")


@pytest.mark.parametrize("names", [[], [""], ["north wing"], ['n"orth'], ["nörth"], ["a,b"]])
def test_a_name_that_a_node_cannot_have_is_refused(study, tmp_path, names):
    with pytest.raises(OptionError, match="clients"):
        write_flower_app(tmp_path / "app", study, names, out=tmp_path / "run")
    assert not (tmp_path / "app").exists()


def test_the_servers_certificate_is_believed_by_whoever_has_the_authority(tmp_path):
    make_certificates(tmp_path, ["superlink.example.org", "127.0.0.1"])
    server = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    server.verify_directly_issued_by(
        x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    )
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["superlink.example.org"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")


def test_private_keys_are_for_their_owner_and_public_ones_belong_to_them(tmp_path):
    make_certificates(tmp_path, ["localhost"])
    make_client_key(tmp_path, "north")
    assert {path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077 == 0} == {
        "ca.key",
        "server.key",
        "north.key",
    }
    private = load_ssh_private_key((tmp_path / "north.key").read_bytes(), None)
    public = load_ssh_public_key((tmp_path / "north.pub").read_bytes())
    assert private.public_key() == public


def test_keys_are_never_written_over(tmp_path):
    make_certificates(tmp_path, ["localhost"])
    make_client_key(tmp_path, "north")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(StorageError, match="never written over"):
        make_certificates(tmp_path, ["localhost"])
    with pytest.raises(StorageError, match="never written over"):
        make_client_key(tmp_path, "north")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["", "../outside", "a b", "a,b", "ä"])
def test_a_key_is_made_only_for_a_name_that_a_node_can_have(tmp_path, name):
    with pytest.raises(OptionError, match="cannot be the name of a node"):
        make_client_key(tmp_path / "keys", name)
    assert not list(tmp_path.iterdir())


def test_an_app_for_newcomers_names_the_run_that_they_join(study, tmp_path):
    fedopl.run(study, study.parent / "clients", out=tmp_path / "run")
    made = {"out": tmp_path / "joined", "join": tmp_path / "run"}
    write_flower_app(tmp_path / "app", study, ["east"], **made)
    content = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert content["tool"]["flwr"]["app"]["config"]["join"] == str(tmp_path / "run")
    with pytest.raises(OptionError, match="'west' is in this run already"):
        write_flower_app(tmp_path / "other", study, ["west"], **made)
    with pytest.raises(StorageError, match="is the run itself"):
        write_flower_app(tmp_path / "other", study, ["east"], **{**made, "out": tmp_path / "run"})
    assert not (tmp_path / "other").exists()
