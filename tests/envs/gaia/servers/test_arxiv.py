"""arXiv against a stand-in that speaks its Atom feed."""

import pytest
from web_stand_in import Answer, StandIn, session_with

from envs.gaia.servers.arxiv import SERVER

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <link href="http://arxiv.org/api/query?search_query=all:electron" rel="self" type="application/atom+xml"/>
  <title type="html">ArXiv Query</title><id>http://arxiv.org/api/cHxbiOdZaP56</id>
  <updated>2026-11-01T00:00:00-05:00</updated>
  <opensearch:totalResults xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{total}</opensearch:totalResults>
  <opensearch:startIndex xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">0</opensearch:startIndex>"""
ENTRY = """<entry>
    <id>http://arxiv.org/abs/2101.0000{n}v2</id><updated>2021-03-04T05:06:07Z</updated>
    <published>2021-01-0{n}T00:00:00Z</published><title>On the
      study of things {n}</title><summary>  We study
things &amp; more.  </summary>
    <author><name>A. First</name></author><author><name>B. Second</name></author>
    <author><name>C. Third</name></author><author><name>D. Fourth</name></author>
    <arxiv:comment xmlns:arxiv="http://arxiv.org/schemas/atom">23 pages</arxiv:comment>
    <link href="http://arxiv.org/abs/2101.0000{n}v2" rel="alternate" type="text/html"/>
    <link title="pdf" href="http://arxiv.org/pdf/2101.0000{n}v2" rel="related" type="application/pdf"/>
    <category term="cs.CL" scheme="http://arxiv.org/schemas/atom"/><category term="math.CO" scheme="x"/>
  </entry>"""
ERROR = """<entry><id>http://arxiv.org/api/errors#incorrect_id_format_for_x</id><title>Error</title>
  <summary>incorrect id format for x</summary></entry>"""


def feed(*entries, total=None):
    return Answer(HEAD.format(total=len(entries) if total is None else total) + "".join(entries) + "</feed>",
                  kind="application/atom+xml")  # fmt: skip


def arxiv(request):
    if "id_list" in request.query:
        return feed(ENTRY.format(n=1)) if request.query["id_list"].startswith("2101") else feed(total=0)
    start, count = int(request.query["start"]), int(request.query["max_results"])
    return feed(*[ENTRY.format(n=n) for n in range(1, 10)][start : start + count], total=9)


def session_on(stand_in, tmp_path):
    return session_with(SERVER, tmp_path, ARXIV_BASE_URL=f"{stand_in.url}/api/query")


async def test_search_and_paper(tmp_path):
    with StandIn(arxiv) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            found = (await session.ok("arxiv_search", query='quick "brown fox"', limit=2, start=3)).splitlines()
            paper = await session.ok("arxiv_paper", id="https://arxiv.org/abs/2101.00001v2")
            beyond = await session.ok("arxiv_search", query="au:first", start=50)
            none = await session.refused("arxiv_paper", id="9999.99999")
            no_id = await session.refused("arxiv_paper", id="the first one")
    assert found == [
        "2101.00004v2 | 2021-01-04 | A. First, B. Second, C. Third and 1 more | On the study of things 4",
        "2101.00005v2 | 2021-01-05 | A. First, B. Second, C. Third and 1 more | On the study of things 5",
        "[4 to 5 of 9]",
    ]
    queries = [request.query.get("search_query") for request in stand_in.requests]
    assert queries == ['all:quick AND all:"brown fox"', None, "au:first", None]
    assert stand_in.requests[1].query["id_list"] == "2101.00001v2"
    assert paper.splitlines() == [
        "id: 2101.00001v2",
        "title: On the study of things 1",
        "authors: A. First, B. Second, C. Third, D. Fourth",
        "published: 2021-01-01T00:00:00Z",
        "updated: 2021-03-04T05:06:07Z",
        "categories: cs.CL math.CO",
        "comment: 23 pages",
        "pdf: http://arxiv.org/pdf/2101.00001v2",
        "abstract: We study things & more.",
    ]
    assert beyond == "No further paper: there are 9."
    assert "arXiv has no paper 9999.99999" in none and "is no arXiv id" in no_id


BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><feed>&b;</feed>'


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (feed(ERROR), "incorrect id format for x"),
        (Answer("<html>busy</html>", 400), "refused the request (HTTP 400)|unexpected form"),
        (Answer("not xml"), "not its Atom format"),
        (Answer(BOMB), "not its Atom format"),
        *(
            (Answer(f'<?xml version="1.0" encoding="{name}"?><feed/>'), "not its Atom format")
            for name in ("UTFO8", "base64", "shift_jis", "idna")
        ),
        (Answer("<rss/>"), "unexpected form"),
        (Answer("", 503, headers={"Retry-After": "60"}), "failure of its own (HTTP 503)"),
    ],
)
async def test_faults(answer, message, tmp_path):
    with StandIn(lambda request: answer) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            told = await session.refused("arxiv_search", query="x")
    assert any(part in told for part in message.split("|")), told
