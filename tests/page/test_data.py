"""The view of data: buckets, folders, objects, their content, uploads, and what hostile names and contents change."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

BUCKET = "places-of-the-page"
SCRIPT = "<img src=x onerror=\"document.body.dataset.hacked='1'\"><script>document.body.dataset.hacked='1'</script>"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def bucket(jobs: Any) -> str:
    jobs.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    return BUCKET


def is_untouched(page: Page) -> bool:
    return page.evaluate("document.body.dataset.hacked === undefined")


def test_objects_are_uploaded_previewed_and_deleted(
    page_of: Callable[..., Page], jobs: Any, bucket: str, axe: Callable[[Page], None], tmp_path: Path
) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(range(256)) * (17 * 4096))  # 17 MiB: two parts
    (tmp_path / "scores.csv").write_text('name,score\n"Ann, A.",0.5\n')
    page = page_of("data")
    page.get_by_role("link", name=bucket).click()
    expect(page.get_by_text("There is no object here.")).to_be_visible()
    chooser = page.get_by_label("Upload files")
    chooser.set_input_files([large, tmp_path / "scores.csv"])
    expect(page.get_by_role("link", name="scores.csv")).to_be_visible()
    stored = jobs.s3.head_object(Bucket=bucket, Key="large.bin")
    assert stored["ContentLength"] == large.stat().st_size
    assert stored["ETag"].endswith('-2"')
    assert jobs.s3.get_object(Bucket=bucket, Key="large.bin")["Body"].read() == large.read_bytes()
    axe(page)
    page.get_by_role("link", name="scores.csv").press("Enter")
    expect(page.locator("#content")).to_be_focused()
    expect(page.get_by_role("cell", name="Ann, A.")).to_be_visible()
    expect(page.get_by_text("text/csv")).to_be_visible()
    axe(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download").click()
    assert saved.value.path().read_text().startswith("name,score")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Delete…")).to_be_focused()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog", name="Delete scores.csv?").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="large.bin")).to_be_visible()
    expect(page.get_by_role("link", name="scores.csv")).to_have_count(0)
    assert [each["Key"] for each in jobs.s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["large.bin"]
    page.get_by_role("link", name="large.bin").click()
    expect(page.get_by_text("neither text nor an image")).to_be_visible()


def test_folders_have_pages_and_addresses(page_of: Callable[..., Page], jobs: Any, bucket: str) -> None:
    for number in range(205):
        jobs.s3.put_object(Bucket=bucket, Key=f"many/{number:03}.json", Body=b'{"a":1}')
    page = page_of(f"data/{bucket}/many", width=360, height=740)
    expect(page.get_by_role("link", name="199.json")).to_be_visible()
    expect(page.get_by_role("link", name="200.json")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "no sideways scrolling"
    link = page.get_by_role("link", name="150.json")
    link.scroll_into_view_if_needed()
    top = page.evaluate("window.scrollY")
    assert top > 1000
    link.click()
    expect(page.get_by_text('"a": 1')).to_be_visible()
    page.go_back()
    page.wait_for_function("top => Math.abs(window.scrollY - top) < 5", arg=top)
    page.get_by_role("button", name="More objects").click()
    page.get_by_role("link", name="204.json").click()
    expect(page.get_by_text('"a": 1')).to_be_visible()
    page.get_by_role("navigation", name="Folder").get_by_role("link", name="many").click()
    assert page.url.endswith(f"/data/{bucket}/many")
    object_page = page_of(f"data/{bucket}/many/007.json")
    expect(object_page.get_by_text('"a": 1')).to_be_visible()


def test_names_and_contents_of_objects_are_only_ever_text(
    page_of: Callable[..., Page], jobs: Any, bucket: str, axe: Callable[[Page], None]
) -> None:
    names = [f"evil/{SCRIPT}.txt", "evil/\u202egnp.txt", "evil/line\nbreak\t.json", "evil/page.html", "evil/draw.svg"]
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg" onload="parent.document.body.dataset.hacked=1">{SCRIPT}</svg>'
    for name in names:
        body = drawing if name.endswith("svg") else SCRIPT
        metadata = {"author": "<b>Ann</b>"}
        jobs.s3.put_object(Bucket=bucket, Key=name, Body=body.encode(), ContentType="text/html", Metadata=metadata)
    jobs.s3.put_object(Bucket=bucket, Key="evil/../up.txt", Body=b"above")
    jobs.s3.put_object(Bucket=bucket, Key="up.txt", Body=b"must stay")
    page = page_of(f"data/{bucket}/evil")
    expect(page.get_by_role("link", name="\u27e8U+202E\u27e9gnp.txt")).to_be_visible()
    expect(page.get_by_role("link", name="line\u240abreak\u2409.json")).to_be_visible()
    axe(page)
    for name in names:
        shown = page_of(f"data/{bucket}?object={quote(name, safe='')}")
        if name.endswith("svg"):
            expect(shown.get_by_role("img", name="evil/draw.svg").or_(shown.get_by_text("cannot show"))).to_be_visible()
        else:
            expect(shown.get_by_role("region", name="Content").get_by_text(SCRIPT)).to_be_visible()
        expect(shown.get_by_text("<b>Ann</b>", exact=True)).to_be_visible()
        assert is_untouched(shown), name
    assert is_untouched(page)
    page.get_by_role("link", name="../", exact=True).click()
    page.get_by_role("link", name="up.txt").click()
    expect(page.get_by_role("alert").get_by_text("cannot ask for an object")).to_be_visible()
    assert jobs.s3.get_object(Bucket=bucket, Key="up.txt")["Body"].read() == b"must stay"


def test_an_archive_shows_its_members_and_their_content(
    page_of: Callable[..., Page], jobs: Any, bucket: str, axe: Callable[[Page], None]
) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in ((f"{SCRIPT}.txt", SCRIPT.encode()), ("plots/loss.png", PIXEL), ("../../up", b"x")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("secret")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    jobs.s3.put_object(Bucket=bucket, Key="model.tar.gz", Body=target.getvalue())
    jobs.s3.put_object(Bucket=bucket, Key="broken.tar.gz", Body=target.getvalue()[:60])
    page = page_of(f"data/{bucket}?object=model.tar.gz")
    page.get_by_role("button", name="plots/loss.png").click()
    expect(page.get_by_role("img", name="plots/loss.png")).to_be_visible()
    assert page.get_by_role("img", name="plots/loss.png").evaluate("image => image.naturalWidth") == 1
    expect(page.get_by_text("link to /etc/passwd")).to_be_visible()
    assert page.get_by_role("button", name="secret").count() == 0
    page.get_by_role("button", name="onerror").click()
    expect(page.get_by_role("region", name="Content").get_by_text(SCRIPT)).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download this member").click()
    assert saved.value.path().read_bytes() == SCRIPT.encode()
    assert is_untouched(page)
    axe(page)
    broken = page_of(f"data/{bucket}?object=broken.tar.gz", expected=("400",))
    expect(broken.get_by_role("alert").get_by_text("cannot be looked into")).to_be_visible()
