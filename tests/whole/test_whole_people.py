"""Several people on one run: each with a key, an adapter and limits of their own."""

import json
from pathlib import Path

import httpx
import openai
import pytest
from safetensors.numpy import load_file
from system import System, until
from talk import CORRECTION, ask, listen

HELLO = {"role": "user", "content": "hello"}
NAMES = ("anna", "bo", "eve")
PER_LEASE = ("SELECT s.lease_id, tr.owner FROM samples s JOIN turns t ON t.id=s.turn_id"
             " JOIN traces tr ON tr.id=t.trace_id WHERE s.state='trained'")


@pytest.fixture(scope="module")
def keys(system: System) -> dict[str, str]:
    """People who were let in while the run was running."""
    return {name: let_in(system, name) for name in NAMES}


def let_in(system: System, name: str, *more: str) -> str:
    done = system.claw("people", "add", name, "--run", str(system.run), *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("shown this once): ")[1].split()[0]


def teach(system: System, key: str) -> str:
    """Talk, correct the answer, and return the id of the answer that was corrected."""
    said = [{"role": "user", "content": "Tell me about tea."}]
    with system.client(key=key) as client:
        heard = listen(client, said)
        said.append({"role": "user", "content": CORRECTION})
        ask(client, said)
    return heard.id


def newest(system: System, name: str) -> int:
    [(number,)] = system.rows(
        "SELECT MAX(number) FROM versions WHERE owner=? AND status='published'", name)
    return number or 0


def test_what_one_says_teaches_their_own_adapter_and_nobody_elses(
    system: System, keys: dict[str, str]
) -> None:
    for _ in range(5):
        for name in ("anna", "bo"):
            teach(system, keys[name])
    for name in ("anna", "bo"):
        assert until(lambda name=name: newest(system, name) >= 1, 90), name
        assert until(lambda name=name: system.status(keys[name])["served_version"] >= 1, 60), name
    by_lease: dict[str, set[str]] = {}
    for lease, owner in system.rows(PER_LEASE):
        by_lease.setdefault(lease, set()).add(owner)
    assert by_lease and all(len(owners) == 1 for owners in by_lease.values())
    assert newest(system, "eve") == newest(system, "default") == 0
    versions = system.run / "versions"
    weights = {name: load_file(versions / name / "default" / "1" / "adapter_model.safetensors")
               for name in ("anna", "bo")}
    assert any((weights["anna"][n] != weights["bo"][n]).any() for n in weights["anna"])


def test_each_is_answered_by_their_own_version(system: System, keys: dict[str, str]) -> None:
    with system.client(key=keys["anna"]) as client:
        heard = ask(client, [dict(HELLO)])
    with system.journal() as journal:
        turn = journal.turn(heard.turn_id)
    assert turn.owner == "anna" and set(turn.completion.versions.tolist()) == {heard.version}
    assert 1 <= heard.version <= newest(system, "anna")
    with system.client(key=keys["eve"]) as client:
        assert ask(client, [dict(HELLO)]).version == 0


def test_nobody_reads_ends_or_votes_on_anothers_conversation(
    system: System, keys: dict[str, str]
) -> None:
    id = teach(system, keys["anna"])
    with system.journal() as journal:
        trace = journal.turn(id.removeprefix("chatcmpl-")).trace_id
    bo = {"authorization": f"Bearer {keys['bo']}"}
    base = system.base_url
    vote = httpx.post(f"{base}/feedback", json={"id": id, "value": 1}, headers=bo, timeout=30)
    assert vote.status_code == 404 and vote.json()["error"]["code"] == "turn_not_found"
    httpx.delete(f"{base}/sessions/{trace}", headers=bo, timeout=30).raise_for_status()
    assert system.rows("SELECT ended FROM traces WHERE id=?", trace) == [("",)]
    for name, status in (("bo", 404), ("anna", 200)):
        with httpx.Client(base_url=base.removesuffix("/v1"), follow_redirects=True) as browser:
            page = browser.post("/login", data={"key": keys[name]})
            assert page.status_code == 200 and name in page.text
            assert browser.get(f"/conversations/{trace}").status_code == status
            assert browser.get("/people").status_code == 403


def test_a_limit_is_a_429_that_clients_understand_and_the_others_talk_on(
    system: System, keys: dict[str, str]
) -> None:
    key = let_in(system, "frank", "--requests-per-minute", "1")
    with system.client(key=key) as client:
        ask(client, [dict(HELLO)], max_tokens=4)
        with pytest.raises(openai.RateLimitError) as caught:
            ask(client, [{"role": "user", "content": "again"}], max_tokens=4)
    assert 0 < int(caught.value.response.headers["retry-after"]) <= 60
    assert "1 requests a minute" in caught.value.message
    with system.client(key=keys["eve"]) as client:
        assert ask(client, [{"role": "user", "content": "me too"}], max_tokens=4).finish


def test_a_key_that_was_taken_opens_nothing_and_the_rest_stays(
    system: System, keys: dict[str, str]
) -> None:
    done = system.claw("people", "remove", "eve", "--run", str(system.run))
    assert done.returncode == 0, done.stderr
    with system.client(key=keys["eve"]) as client, pytest.raises(openai.AuthenticationError):
        ask(client, [dict(HELLO)])
    with system.client(key=keys["anna"]) as client:
        assert ask(client, [{"role": "user", "content": "still there?"}]).finish
    assert system.rows("SELECT COUNT(*) FROM traces WHERE owner='eve'")[0][0] >= 1


def test_after_a_restart_everybody_is_who_they_were(system: System, keys: dict[str, str]) -> None:
    before = {name: newest(system, name) for name in ("anna", "bo")}
    system.stop()
    system.resume()
    for name, number in before.items():
        assert until(lambda name=name, number=number: system.status(keys[name])[
            "served_version"] >= number, 90), (name, json.dumps(system.status(keys[name])))
    with system.client(key=keys["bo"]) as client:
        assert ask(client, [{"role": "user", "content": "who are you now"}]).version >= before["bo"]


def test_no_key_is_on_a_command_line_in_an_environment_a_log_or_the_journal(
    system: System, keys: dict[str, str]
) -> None:
    secrets = [system.key, *(keys[name] for name in NAMES)]
    with system.client(key=keys["anna"]) as client:
        ask(client, [dict(HELLO)])
    with pytest.raises(openai.AuthenticationError), system.client(key=system.key + "x") as client:
        ask(client, [dict(HELLO)])
    places = [file for file in system.run.rglob("*") if file.is_file() and file.name != "api_key"]
    for pid in {*system.processes(), *system.pids().values()}:
        places += [Path(f"/proc/{pid}/{what}") for what in ("cmdline", "environ")]
    assert {"actor.log", "runner.log", "journal.sqlite", "runner.json", "cmdline", "environ"} <= {
        place.name for place in places}
    for place in places:
        said = place.read_bytes()
        for secret in secrets:
            assert secret.encode() not in said, place


def test_everything_in_the_run_folder_is_its_owners_alone(system: System) -> None:
    found = [system.run, *system.run.rglob("*")]
    assert len(found) > 20
    open_to_others = [str(p) for p in found if p.lstat().st_mode & 0o077 and not p.is_symlink()]
    assert open_to_others == []
