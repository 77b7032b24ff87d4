"""What of OSWorld runs where: everything else is refused by name, before anything starts.

Owns: the names of all step kinds, getters and metrics that tasks use, and why some cannot be had.
Does not own: doing any of them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from claw.sdk.formats.folder import FormatError

from .files import cached
from .metrics import METRICS, unsupported_options
from .task import Check, DesktopTask, Step

STEPS = ("download", "launch", "open", "execute", "command", "activate_window", "close_window",
         "sleep", "chrome_open_tabs", "chrome_close_tabs")
REFUSED_STEPS = {
    "googledrive": "an account at Google", "login": "an account at a website",
    "update_browse_history": "Google Chrome's own history file",
    "proxy": "a proxy", "replay": "recorded input",
    "change_wallpaper": "a desktop with a wallpaper",
    "tidy_desktop": "a desktop with icons",
    "execute_with_verification": "a VM of OSWorld 2",
    "upload_file": "files outside the task",
}
GETTERS = ("vm_file", "cloud_file", "cache_file", "content_from_vm_file", "vm_command_line",
           "vm_command_error", "vm_screen_size", "vm_window_size", "list_directory", "rule",
           "accessibility_tree", "active_url_from_accessTree", "time_diff_range")
WITHOUT_MACHINE = ("rule", "cloud_file", "cache_file", "time_diff_range")
CHROME = "Google Chrome with its debugging port"
REFUSED_GETTERS = {
    **dict.fromkeys((
        "default_search_engine", "cookie_data", "bookmarks", "open_tabs_info",
        "shortcuts_on_desktop", "history", "page_info",
        "enabled_experiments", "chrome_language", "chrome_font_size",
        "profile_name", "active_tab_info", "enable_do_not_track", "enable_enhanced_safety_browsing",
        "enable_safe_browsing", "new_startup_page", "find_unpacked_extension_path",
        "data_delete_automacally", "active_tab_html_parse", "active_tab_url_parse", "url_dashPart",
        "find_installed_extension_name", "url_path_parse", "chrome_saved_address",
        "number_of_search_results", "chrome_appearance_mode_ui",
    ), CHROME),
    **dict.fromkeys((
        "info_from_website", "macys_product_url_parse", "pdf_from_url",
        "gotoRecreationPage_and_get_html_content", "rule_relativeTime",
    ), "websites"),
    "googledrive_file": "an account at Google",
    **dict.fromkeys(("vlc_playing_info", "vlc_config", "default_video_player"), "VLC"),
    "gimp_config_file": "GIMP", "vscode_config": "Visual Studio Code",
    "vm_terminal_output": "gnome-terminal", "vm_wallpaper": "a desktop with a wallpaper",
    "replay": "recorded input", "audio_in_slide": "LibreOffice Impress",
    "background_image_in_slide": "LibreOffice Impress", "conference_city_in_order": "websites",
}
MISSING_APPS = {
    "google-chrome": "Google Chrome", "google-chrome-stable": "Google Chrome", "socat": CHROME,
    "libreoffice": "LibreOffice", "soffice": "LibreOffice", "localc": "LibreOffice",
    "lowriter": "LibreOffice", "loimpress": "LibreOffice", "gimp": "GIMP", "vlc": "VLC",
    "thunderbird": "Thunderbird", "code": "Visual Studio Code", "nautilus": "Files of GNOME",
    "gnome-terminal": "the terminal of GNOME", "gnome-control-center": "the settings of GNOME",
    "gedit": "gedit", "firefox": "Firefox", "evince": "evince", "gsettings": "GNOME",
    "pactl": "PulseAudio", "apt": "a network", "apt-get": "a network", "snap": "a network",
    "pip": "a network", "pip3": "a network", "curl": "a network", "wget": "a network",
}
MISSING_RELATED = {
    "chrome": "Google Chrome", "gimp": "GIMP", "libreoffice_calc": "LibreOffice",
    "libreoffice_impress": "LibreOffice", "libreoffice_writer": "LibreOffice", "vlc": "VLC",
    "thunderbird": "Thunderbird", "vs_code": "Visual Studio Code", "vscode": "Visual Studio Code",
}


def refuse_unsupported(task: DesktopTask, *, is_remote: bool, cache: Path | None) -> None:
    """Raise FormatError that names every part which cannot be run on this kind of machine."""
    if found := list(dict.fromkeys(unsupported(task, is_remote=is_remote, cache=cache))):
        raise FormatError(
            f"task {task.id!r} asks for what "
            f"{'claw' if is_remote else 'the desktop image'} has not", found="; ".join(found),
            do="leave the task out" if is_remote else
            "leave the task out, or give a virtual machine that has it: plugin.gui.remote",
        )


def unsupported(task: DesktopTask, *, is_remote: bool, cache: Path | None) -> Iterator[str]:
    """Yield each part that cannot be run, and what it would need."""
    if task.needs_proxy:
        yield "proxy: a proxy to the outside"
    if task.needs_fixed_ip:
        yield "fixed_ip: a fixed address"
    if not is_remote:
        for app in task.related_apps:
            if app in MISSING_RELATED:
                yield f"related_apps {app!r}: {MISSING_RELATED[app]}"
    for where, steps in (("config", task.config), ("postconfig", task.postconfig)):
        for step in steps:
            yield from (f"{where} {part}" for part in _of_step(step, task, is_remote, cache))
    for check in task.checks:
        yield from _of_check(check, task, is_remote, cache)


def _of_step(step: Step, task: DesktopTask, is_remote: bool, cache: Path | None) -> Iterator[str]:
    if step.kind in REFUSED_STEPS:
        yield f"{step.kind!r}: {REFUSED_STEPS[step.kind]}"
    elif step.kind not in STEPS:
        yield f"{step.kind!r}: no such step is known"
    elif step.kind == "download":
        for file in step.args.get("files") or ():
            yield from _of_url(str(file.get("url")), task, cache, "download")
    elif step.kind == "chrome_open_tabs" and not is_remote:
        for url in step.args.get("urls_to_open") or ():
            if urlsplit(str(url)).scheme not in ("file", "about", ""):
                yield f"chrome_open_tabs {url}: a network"
    elif step.kind in ("launch", "execute", "command") and not is_remote:
        program = program_of(step.args.get("command"))
        if program in MISSING_APPS:
            yield f"{step.kind} {program!r}: {MISSING_APPS[program]}"


def program_of(command: Any) -> str:
    """Return the name of the program that a command starts."""
    words = command.split() if isinstance(command, str) else [str(w) for w in command or ()]
    return words[0].rsplit("/", 1)[-1] if words else ""


def _of_url(url: str, task: DesktopTask, cache: Path | None, where: str) -> Iterator[str]:
    if cached(task, url, cache) is None:
        need = "a network" if "://" in url else "that file beside the task"
        yield f"{where} {url}: {need}"


def _of_check(
    check: Check, task: DesktopTask, is_remote: bool, cache: Path | None
) -> Iterator[str]:
    if check.func not in METRICS:
        yield f"metric {check.func!r}: claw does not compute it"
    else:
        yield from (f"metric {check.func!r}: {part}" for part in unsupported_options(check))
    for role, getter in (("result", check.result), ("expected", check.expected)):
        if getter is None:
            continue
        kind = str(getter["type"])
        if kind in REFUSED_GETTERS:
            yield f"{role} getter {kind!r}: {REFUSED_GETTERS[kind]}"
        elif kind not in GETTERS:
            yield f"{role} getter {kind!r}: no such getter is known"
        elif kind == "cloud_file":
            paths = getter.get("path")
            for url in paths if isinstance(paths, list) else [paths]:
                yield from _of_url(str(url), task, cache, f"{role} getter 'cloud_file'")
        elif kind in ("vm_command_line", "vm_command_error") and not is_remote:
            program = program_of(getter.get("command"))
            if program in MISSING_APPS:
                yield f"{role} getter {kind!r} {program!r}: {MISSING_APPS[program]}"
