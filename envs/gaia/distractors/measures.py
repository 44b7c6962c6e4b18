"""Measures: units, shapes, colours, calendars."""

from __future__ import annotations

import calendar
import colorsys
import datetime as dt
import math
import re
from typing import Annotated, Literal

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.tools.base import ToolFault, quoted

LENGTHS = {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048, "yd": 0.9144, "mi": 1609.344}
MASSES = {"g": 0.001, "kg": 1.0, "t": 1000.0, "oz": 0.028349523125, "lb": 0.45359237, "st": 6.35029318}
VOLUMES = {"ml": 0.001, "l": 1.0, "m3": 1000.0, "tsp": 0.00492892159375, "cup": 0.2365882365, "gal": 3.785411784}
_SIGNS = (
    *((120, "Capricorn"), (218, "Aquarius"), (320, "Pisces"), (419, "Aries"), (520, "Taurus"), (620, "Gemini")),
    *((722, "Cancer"), (822, "Leo"), (922, "Virgo"), (1022, "Libra"), (1121, "Scorpio"), (1221, "Sagittarius")),
    (1231, "Capricorn"),
)

Length = Literal["mm", "cm", "m", "km", "in", "ft", "yd", "mi"]
Mass = Literal["g", "kg", "t", "oz", "lb", "st"]
Volume = Literal["ml", "l", "m3", "tsp", "cup", "gal"]
Degrees = Literal["C", "F", "K"]
Value = Annotated[float, Field(ge=-1e12, le=1e12)]
Side = Annotated[float, Field(gt=0, le=1e9)]
Hex = Annotated[str, Field(pattern=r"^#?[0-9A-Fa-f]{6}$", description="Such as #1E90FF.")]
Year = Annotated[int, Field(ge=1, le=9999)]
Month = Annotated[int, Field(ge=1, le=12)]


def convert_length(value: Value, from_unit: Length, to_unit: Length) -> str:
    """A length in another unit."""
    return f"{value * LENGTHS[from_unit] / LENGTHS[to_unit]:.10g} {to_unit}"


def convert_mass(value: Value, from_unit: Mass, to_unit: Mass) -> str:
    """A mass in another unit."""
    return f"{value * MASSES[from_unit] / MASSES[to_unit]:.10g} {to_unit}"


def convert_volume(value: Value, from_unit: Volume, to_unit: Volume) -> str:
    """A volume in another unit (US cups, teaspoons and gallons)."""
    return f"{value * VOLUMES[from_unit] / VOLUMES[to_unit]:.10g} {to_unit}"


def convert_temperature(value: Value, from_unit: Degrees, to_unit: Degrees) -> str:
    """A temperature on another scale."""
    kelvin = {"C": value + 273.15, "F": (value + 459.67) / 1.8, "K": value}[from_unit]
    if kelvin < -1e-9:
        raise ToolFault("this is below absolute zero")
    return f"{ {'C': kelvin - 273.15, 'F': kelvin * 1.8 - 459.67, 'K': kelvin}[to_unit]:.2f} {to_unit}"


def circle_measures(radius: Side) -> str:
    """Circumference and area."""
    return f"circumference {2 * math.pi * radius:.6g}, area {math.pi * radius**2:.6g}"


def sphere_measures(radius: Side) -> str:
    """Surface and volume."""
    return f"surface {4 * math.pi * radius**2:.6g}, volume {4 / 3 * math.pi * radius**3:.6g}"


def triangle_measures(a: Side, b: Side, c: Side) -> str:
    """Area (Heron), perimeter and angles of a triangle with these sides."""
    if not (a + b > c and b + c > a and c + a > b):
        raise ToolFault("no triangle has these sides: the two shorter ones must be longer together than the third")
    half = (a + b + c) / 2
    area = math.sqrt(max(0.0, half * (half - a) * (half - b) * (half - c)))
    cosines = ((b * b + c * c - a * a) / (2 * b * c), (a * a + c * c - b * b) / (2 * a * c))
    alpha, beta = (math.degrees(math.acos(max(-1.0, min(1.0, x)))) for x in cosines)
    return f"area {area:.6g}, perimeter {2 * half:.6g}, angles {alpha:.2f} {beta:.2f} {180 - alpha - beta:.2f}"


def polygon_angles(sides: Annotated[int, Field(ge=3, le=1000)]) -> str:
    """Angles and diagonals of a regular polygon."""
    diagonals = sides * (sides - 3) // 2
    return f"inner angle {180 * (sides - 2) / sides:.6g}, outer angle {360 / sides:.6g}, diagonals {diagonals}"


def hex_to_rgb(color: Hex) -> str:
    """A colour's parts."""
    r, g, b = _rgb(color)
    hue, light, saturation = colorsys.rgb_to_hls(r / 255, g / 255, b / 255)
    return f"rgb({r}, {g}, {b}), hsl({hue * 360:.0f}, {saturation * 100:.0f}%, {light * 100:.0f}%)"


def mix_colors(first: Hex, second: Hex, share: Annotated[float, Field(ge=0, le=1)] = 0.5) -> str:
    """The colour between two; ``share`` is the second one's."""
    pairs = zip(_rgb(first), _rgb(second), strict=True)
    return "#" + "".join(f"{math.floor(a * (1 - share) + b * share + 0.5):02X}" for a, b in pairs)


def contrast_ratio(first: Hex, second: Hex) -> str:
    """The contrast of two colours as web accessibility guidelines (WCAG 2) define it, from 1 to 21."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return f"{(light + 0.05) / (dark + 0.05):.2f}"


def _rgb(color: str) -> tuple[int, int, int]:
    digits = color.lstrip("#")
    if not re.fullmatch(r"[0-9A-Fa-f]{6}", digits):
        raise ToolFault(f"{quoted(color)} is no colour like #1E90FF")
    return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)


def _luminance(color: str) -> float:
    parts = [value / 255 for value in _rgb(color)]
    r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def month_calendar(year: Year, month: Month) -> str:
    """A month, weeks from Monday."""
    return calendar.TextCalendar(calendar.MONDAY).formatmonth(year, month).rstrip()


def iso_week(year: Year, month: Month, day: Annotated[int, Field(ge=1, le=31)]) -> str:
    """The ISO week of a date."""
    try:
        found = dt.date(year, month, day).isocalendar()
    except ValueError:
        raise ToolFault(f"there is no day {day} in month {month} of {year}") from None
    return f"{found.year}-W{found.week:02d}-{found.weekday}"


def easter_sunday(year: Annotated[int, Field(ge=1583, le=9999)]) -> str:
    """Easter in the Gregorian calendar (the anonymous algorithm that J. Meeus gives)."""
    a, (b, c) = year % 19, divmod(year, 100)
    d, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    m = (32 + 2 * e + 2 * i - h - k) % 7
    n = (a + 11 * h + 19 * m) // 433
    month, day = divmod(h + m - 7 * n + 90, 25)
    return f"{year}-{month:02d}-{(h + m - 7 * n + 33 * month + 19) % 32:02d}"


def zodiac_sign(month: Month, day: Annotated[int, Field(ge=1, le=31)]) -> str:
    """The sign of the zodiac of a birthday."""
    if day > calendar.monthrange(2000, month)[1]:
        raise ToolFault(f"month {month} has no day {day}")
    return next(sign for last, sign in _SIGNS if 100 * month + day <= last)


def tools() -> list[Tool]:
    """The tools of this module."""
    return [
        Tool(convert_length, "Convert a length from one unit to another."),
        Tool(convert_mass, "Convert a mass from one unit to another."),
        Tool(convert_volume, "Convert a volume from one unit to another (US kitchen units)."),
        Tool(convert_temperature, "Convert a temperature between Celsius, Fahrenheit and kelvin."),
        Tool(circle_measures, "Circumference and area of a circle."),
        Tool(sphere_measures, "Surface and volume of a sphere."),
        Tool(triangle_measures, "Area, perimeter and angles of a triangle from its three sides."),
        Tool(polygon_angles, "Angles and number of diagonals of a regular polygon."),
        Tool(hex_to_rgb, "Give the red, green, blue and the hue of a hex colour."),
        Tool(mix_colors, "Mix two hex colours."),
        Tool(contrast_ratio, "Compute the contrast ratio of two hex colours (WCAG)."),
        Tool(month_calendar, "Show the calendar of a month."),
        Tool(iso_week, "Give the ISO week and weekday of a date."),
        Tool(easter_sunday, "Give the date of Easter Sunday in a year."),
        Tool(zodiac_sign, "Give the sign of the zodiac of a birthday."),
    ]
