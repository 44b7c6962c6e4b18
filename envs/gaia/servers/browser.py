"""A real browser, driven through Playwright: pages that need scripts, forms and clicks. One browser an episode.

It reaches public addresses only (:mod:`envs.gaia.servers.proxy`), keeps nothing on disk, and downloads nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.addresses import Guard
from envs.gaia.servers.proxy import GuardedProxy
from envs.gaia.servers.settings import Settings, Variable
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import ALLOW_VAR
from envs.gaia.tools.base import ImageBlock, Reply, ToolFault, clip, page_of, quoted

ACTION_S = 30.0
"""Seconds for one call, loading included."""
SETTLE_S = 2.0
"""Seconds that a page gets to finish what it began."""
PAUSE_S = 0.15
"""Seconds until what a click sets going has begun."""
TEXT_CHARS = 1500
"""Characters of text that an action shows; ``browser_read`` shows more."""
SHOWN = 30
"""Elements that an action shows; ``browser_elements`` shows more."""
MAX_TEXT = 400_000
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLES = (
    Variable("BROWSER_EXECUTABLE", "the Chromium or Chrome to start; by default the first one found"),
    ALLOW_VAR,
)

Number = Annotated[int, Field(ge=1, description="As listed.")]

_ELEMENTS = """() => {
  const found = [];
  const query = 'a[href], button, input:not([type=hidden]), select, textarea, [role=button], [role=link], [onclick]';
  for (const node of document.querySelectorAll('[data-aworld-n]')) node.removeAttribute('data-aworld-n');
  for (const node of document.querySelectorAll(query)) {
    const box = node.getBoundingClientRect();
    const style = getComputedStyle(node);
    if (box.width < 1 || box.height < 1 || style.visibility === 'hidden') continue;
    if (found.length >= 500) break;
    node.setAttribute('data-aworld-n', found.length + 1);
    const tag = node.tagName.toLowerCase();
    const kind = tag === 'a' ? 'link' : tag === 'input' ? node.type : tag;
    const label = node.labels && node.labels.length ? node.labels[0].innerText : '';
    const name = [node.innerText, label, node.getAttribute('aria-label'), node.placeholder, node.name, node.title]
      .find(text => text && String(text).trim()) || '';
    const secret = tag === 'input' && node.type === 'password';
    const value = ['input', 'select', 'textarea'].includes(tag) && !secret ? String(node.value || '') : '';
    found.push([kind, String(name).replace(/\\s+/g, ' ').trim().slice(0, 80), value.slice(0, 80)]);
  }
  return found;
}"""


class Browser:
    """One Chromium with one page, started at the first call.

    Args:
        settings: name the program and the private hosts that are allowed.
        closing: what is to be closed at the end.
    """

    def __init__(self, settings: Settings, closing: AsyncExitStack):
        self._settings, self._closing = settings, closing
        self._guard = Guard.of(settings.get(ALLOW_VAR.name))
        self._lock = asyncio.Lock()
        self._context: Any = None

    async def act(self, action: Callable[[Any], Awaitable[Any]]) -> Any:
        """What ``action(page)`` gives, one at a time and bounded.

        Raises:
            ToolFault: the browser does not start, or the action fails or takes too long.
        """
        from playwright.async_api import Error

        async with self._lock:
            try:
                async with asyncio.timeout(ACTION_S):
                    if self._context is None:
                        self._context = await self._start()
                    return await action(await self._current())
            except TimeoutError:
                raise ToolFault(f"the page did not do this within {ACTION_S:g} s; try another one") from None
            except Error as error:
                raise ToolFault(_words(error)) from None

    async def open(self, url: str) -> str:
        """Go to an address."""
        from playwright.async_api import Error

        target = str(self._guard.url(url))

        async def go(page: Any) -> str:
            try:
                reply = await page.goto(target, wait_until="domcontentloaded")
            except Error:
                # the page that a failure leaves behind comes late, and would get in the way of what is opened next
                await page.close()
                raise
            if reply is not None and reply.status == 403 and not reply.headers.get("content-type"):
                raise ToolFault(f"{quoted(url)} leads to a private address, and only public hosts can be reached")
            return await self.view(page)

        found: str = await self.act(go)
        return found

    async def view(self, page: Any) -> str:
        """Where the page is, how its text begins, and what can be clicked or filled in."""
        await self._settle(page)
        if (current := await self._current()) is not page:  # it has opened another one, or closed itself
            page = current
            await self._settle(page)
        text = await self.text(page)
        start = clip(text, TEXT_CHARS)
        more = f"\n[{len(text):,} characters in all: browser_read]" if len(start) < len(text) else ""
        return f"{page.url} | {await page.title()}\n\n{start}{more}\n\n{_listed(await page.evaluate(_ELEMENTS), 1)}"

    async def text(self, page: Any) -> str:
        """The visible text."""
        found: str = await page.evaluate(f"() => document.body ? document.body.innerText.slice(0, {MAX_TEXT}) : ''")
        return "\n".join(line.rstrip() for line in found.splitlines()).strip() or "(no text)"

    async def element(self, page: Any, number: int) -> Any:
        """The element that a view numbered.

        Raises:
            ToolFault: there is none of that number now.
        """
        found = page.locator(f'[data-aworld-n="{number}"]').first
        if await found.count() == 0:
            raise ToolFault(f"there is no element {number} on this page now; browser_elements lists them")
        return found

    async def back(self, page: Any) -> str:
        """To the page before; from a window that a page has opened, back to that page."""
        before = page.url
        if await page.go_back(wait_until="domcontentloaded") is None and page.url == before:
            if len(self._context.pages) == 1:
                raise ToolFault("there is no page before this one")
            await page.close()
        return await self.view(await self._current())

    async def _current(self) -> Any:
        """The window that was opened last."""
        pages = self._context.pages
        return pages[-1] if pages else await self._context.new_page()

    async def _settle(self, page: Any) -> None:
        from playwright.async_api import TimeoutError as TooLate

        if page.is_closed():
            return
        try:
            await asyncio.sleep(PAUSE_S)
            await page.wait_for_load_state("networkidle", timeout=SETTLE_S * 1000)
        except TooLate:
            pass  # many pages never come to rest; what is there is shown

    async def _start(self) -> Any:
        from playwright.async_api import async_playwright

        proxy = GuardedProxy(self._guard)
        address = await proxy.start()
        self._closing.push_async_callback(proxy.aclose)
        playwright = await async_playwright().start()
        self._closing.push_async_callback(playwright.stop)
        browser = await playwright.chromium.launch(
            executable_path=executable(self._settings),
            # loopback goes through the proxy too, or it would not be checked; nor may anything go by UDP
            proxy={"server": address, "bypass": "<-loopback>"},
            args=[
                "--disable-quic",
                "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
                "--disable-dev-shm-usage",
            ],
            env={name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ},
        )
        self._closing.push_async_callback(browser.close)
        context = await browser.new_context(
            accept_downloads=False,
            service_workers="block",
            viewport={"width": 1024, "height": 768},
            locale="en-US",
            timezone_id="UTC",
        )
        context.set_default_timeout(ACTION_S * 500)
        return context


def build(setup: Setup) -> list[Tool]:
    """The seven tools."""
    browser = Browser(setup.settings, setup.closing)

    async def browser_open(url: Annotated[str, Field(min_length=1)]) -> str:
        return await browser.open(url)

    async def browser_click(element: Number) -> str:
        async def click(page: Any) -> str:
            await (await browser.element(page, element)).click()
            return await browser.view(page)

        return str(await browser.act(click))

    async def browser_type(
        element: Number,
        text: Annotated[str, Field(max_length=2000)],
        submit: Annotated[bool, Field(description="Press Enter after it.")] = False,
    ) -> str:
        async def fill(page: Any) -> str:
            target = await browser.element(page, element)
            if await target.evaluate("node => node.tagName") == "SELECT":
                await target.select_option(text)
            else:
                await target.fill(text)
            if submit:
                await target.press("Enter")
            return await browser.view(page)

        return str(await browser.act(fill))

    async def browser_read(page: Annotated[int, Field(ge=1)] = 1) -> str:
        return page_of(await browser.act(browser.text), page)

    async def browser_elements(start: Number = 1) -> str:
        async def listed(page: Any) -> str:
            return _listed(await page.evaluate(_ELEMENTS), start)

        return str(await browser.act(listed))

    async def browser_back() -> str:
        return str(await browser.act(browser.back))

    async def browser_screenshot() -> Reply:
        async def shoot(page: Any) -> list[str | ImageBlock]:
            return [page.url, ImageBlock(await page.screenshot(type="png"))]

        shot: list[str | ImageBlock] = await browser.act(shoot)
        return shot

    return [
        Tool(
            browser_open,
            "Open a page in a browser. Shows its text and its links, buttons and fields, numbered.",
            read_only=False,
        ),
        Tool(browser_click, "Click an element of the page, by its number.", read_only=False),
        Tool(browser_type, "Fill in a field, or choose an option, by its number.", read_only=False),
        Tool(browser_read, "The text of the page, about 4,000 characters at a time."),
        Tool(browser_elements, f"The links, buttons and fields of the page, {SHOWN} at a time."),
        Tool(browser_back, "Go back to the page before.", read_only=False),
        Tool(browser_screenshot, "A picture of the page as it is shown."),
    ]


def _listed(elements: list[list[str]], start: int) -> str:
    if start > max(1, len(elements)):
        raise ToolFault(f"there are {len(elements)} elements")
    shown = elements[start - 1 : start - 1 + SHOWN]
    lines = [
        f"[{number}] {kind} {name!r}" + (f" = {value!r}" if value and value != name else "")
        for number, (kind, name, value) in enumerate(shown, start)
    ]
    left = len(elements) - (start - 1 + len(shown))
    return "\n".join([*(lines or ["(nothing to click)"]), *([f"[{left} more: browser_elements]"] if left else [])])


def _words(error: Exception) -> str:
    """The first line of a Playwright error, which is the only one that says what happened."""
    first = clip(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__, 200)
    if "ERR_TUNNEL_CONNECTION_FAILED" in first or "ERR_PROXY" in first:
        return "the page cannot be reached: there is no such host, it does not answer, or its address is private"
    return f"the browser could not do this: {first}"


def executable(settings: Settings) -> str | None:
    """The program to start; None where there is none."""
    named = settings.get("BROWSER_EXECUTABLE")
    if named:
        return named if os.access(named, os.X_OK) else None
    for program in PROGRAMS:
        found = shutil.which(program)
        if found:
            return found
    root = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    own = sorted(root.glob("chromium-*/chrome-linux*/chrome"))
    return str(own[-1]) if own else None


def _lacks(settings: Settings) -> str | None:
    if executable(settings) is not None:
        return None
    named = settings.get("BROWSER_EXECUTABLE")
    return (
        f"BROWSER_EXECUTABLE names {named!r}, which cannot be run" if named else "there is no Chromium on this machine"
    )


SERVER = ServerSpec(
    name="browser",
    summary="A real browser (Chromium through Playwright).",
    tools=(
        "browser_open",
        "browser_click",
        "browser_type",
        "browser_read",
        "browser_elements",
        "browser_back",
        "browser_screenshot",
    ),
    build=build,
    variables=VARIABLES,
    scope="episode",
    packages=("playwright",),
    lacks=_lacks,
    how="pip install 'aworld-gym[browser]', and have a Chromium: `playwright install chromium`, your system's package, "
    "or BROWSER_EXECUTABLE=/path/to/it.",
)

if __name__ == "__main__":
    SERVER.run()
