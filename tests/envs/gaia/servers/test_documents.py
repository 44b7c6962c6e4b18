"""Datalab against a stand-in that speaks its submit-and-ask API."""

import pytest
from web_stand_in import Answer, StandIn, session_with

from envs.gaia.servers import documents
from envs.gaia.servers.documents import SERVER

KEY = "datalab-key-1"


class Datalab:
    """Accepts a document, is busy for some questions, then done."""

    def __init__(self, *, busy=2, final=None, submitted=None):
        self.busy, self.final, self.submitted = busy, final, submitted

    def __call__(self, request):
        if request.headers.get("x-api-key") != KEY:
            return Answer({"detail": "Invalid API key"}, 401)
        if request.method == "POST":
            assert request.path == "/api/v1/marker"
            made = {"success": True, "error": None, "request_id": "req_17",
                    "request_check_url": "http://169.254.169.254/api/v1/marker/req_17"}  # fmt: skip
            return Answer(made if self.submitted is None else self.submitted)
        assert request.path == "/api/v1/marker/req_17"
        self.busy -= 1
        if self.busy >= 0:
            return Answer({"status": "processing"})
        done = {"status": "complete", "success": True, "output_format": "markdown", "markdown": "# Title\n\n| a | b |",
                "error": "", "page_count": 2, "images": {}, "metadata": {}}  # fmt: skip
        return Answer(done if self.final is None else self.final)


def session_on(stand_in, tmp_path, key=KEY):
    settings = {"DATALAB_API_KEY": key, "DATALAB_BASE_URL": stand_in.url, "DATALAB_POLL_S": "0.01"}
    return session_with(SERVER, tmp_path, **settings)


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "scan.pdf").write_bytes(b"%PDF-scan")
    return tmp_path


async def test_a_document_becomes_markdown(workspace):
    with StandIn(Datalab()) as stand_in:
        async with session_on(stand_in, workspace) as session:
            text = await session.ok("convert_document", path="scan.pdf", pages="0,2-4")
            await session.ok("convert_document", path="scan.pdf", pages="0,2-4")
    assert text == "# Title\n\n| a | b |\n[2 pages]"
    submitted = [request for request in stand_in.requests if request.method == "POST"]
    assert len(submitted) == 1 and len(stand_in.requests) == 4
    form = submitted[0].body
    assert b"%PDF-scan" in form and b'filename="document.pdf"' in form and b"application/pdf" in form
    assert b"markdown" in form and b"0,2-4" in form


@pytest.mark.parametrize(
    ("datalab", "message"),
    [
        (Datalab(submitted={"success": False, "error": "file too large"}), "refused 'scan.pdf': file too large"),
        (Datalab(submitted={"success": True}), "unexpected form"),
        (Datalab(submitted={"request_id": "../../x?y"}), "unexpected form"),
        (Datalab(final={"status": "failed", "success": False, "error": "broken pdf"}), "could not convert"),
        (Datalab(final={"status": "complete", "success": False, "error": "broken pdf"}), "broken pdf"),
        (Datalab(final={"status": "complete", "success": True}), "unexpected form"),
        (Datalab(final=[1]), "unexpected form"),
    ],
)
async def test_faults(datalab, message, workspace):
    with StandIn(datalab) as stand_in:
        async with session_on(stand_in, workspace) as session:
            assert message in await session.refused("convert_document", path="scan.pdf")


async def test_a_wrong_key_and_a_conversion_without_end(workspace, monkeypatch):
    with StandIn(Datalab(busy=10**6)) as stand_in:
        async with session_on(stand_in, workspace, "wrong-key-1") as session:
            assert "DATALAB_API_KEY may be wrong" in await session.refused("convert_document", path="scan.pdf")
        monkeypatch.setattr(documents, "WAIT_S", 0.3)
        async with session_on(stand_in, workspace) as session:
            assert "was not done" in await session.refused("convert_document", path="scan.pdf")


@pytest.mark.parametrize(
    ("path", "message"), [("a.exe", "cannot be converted"), ("none.pdf", "there is no"), ("../x.pdf", "only files of")]
)
async def test_only_documents_of_the_workspace_leave_it(path, message, workspace):
    with StandIn(Datalab()) as stand_in:
        async with session_on(stand_in, workspace) as session:
            assert message in await session.refused("convert_document", path=path)
    assert stand_in.requests == []
