"""The parts of the names in the closed world, and the values that are not entities.

All of it is fixed: a world chooses among the names and invents no word. No word is in two lists,
so a name shows the kind of what it names.
"""


def split(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


def _joined(starts: str, ends: str) -> tuple[str, ...]:
    return tuple(start + end for start in split(starts) for end in split(ends))


FIRST_NAMES = _joined("Al Bren Cal Dor El Fin Gal Hel Is Jor", "a an ba dric en ia mund or")
FAMILY_NAMES = _joined(
    "Ash Birch Crow Dun Elm Fox Hart Kirk Lang Thorn", "bridge by ford gate ley stead ton wick"
)
TOWNS = _joined(
    "Bar Cres Dol Fal Gor Kal Lor Mer Nor Pel Tor Ves",
    "amar bach den eth grad holm imar mouth ova stadt",
)
REGIONS = _joined("An Bel Cam Or Sil", "asia doria landia voria")

WORK_STARTS = split(
    "Broken Burning Crooked Distant Empty Endless Faded Fallen Forgotten Frozen Gentle Golden "
    "Hidden Hollow Hungry Last Lonely Lost Narrow Northern Pale Patient Quiet Restless Rusty "
    "Sacred Scarlet Secret Shining Silent Sleeping Solemn Southern Stolen Stormy Sudden Sunken "
    "Sweet Tall Thirsty Twisted Velvet Wandering Weary Western Whispering Wild Winding Wooden "
    "Young"
)
WORK_ENDS = split(
    "Bell Bridge Candle Castle Chamber Clock Crown Dagger Dawn Desert Door Dream Echo Farewell "
    "Feather Fire Flame Forest Fountain Garden Garment Ghost Harbor Harvest Heart Hill Horizon "
    "Island Journey Lantern Letter Mirror Moon Morning Mountain Night Ocean Orchard Painting "
    "Promise River Road Rose Shadow Shore Song Star Summer Tower Winter"
)
ORGANISATION_STARTS = split(
    "Albion Amber Anchor Aurora Beacon Cedar Cobalt Compass Coral Crescent Crystal Delta Eagle "
    "Ebony Emerald Falcon Garnet Granite Heron Indigo Ivory Jasper Juniper Laurel Linden Marble "
    "Meridian Onyx Opal Orion Pearl Phoenix Quartz Raven Sable Sapphire Sterling Summit Topaz "
    "Zenith"
)
ORGANISATION_ENDS = split(
    "Academy Alliance Assembly Association Bank Brigade Bureau Chapel Circle College Company "
    "Council Exchange Foundation Foundry Guild Hospital Institute Laboratory League Library Mill "
    "Mission Museum Observatory Press School Society Theatre Union"
)

PROFESSIONS = split(
    "baker builder chemist doctor lawyer painter printer sailor sculptor singer tailor weaver"
)
PRODUCTS = split("cheese copper glass honey lace paper pottery salt silk timber wine wool")
WORK_KINDS = ("ballad", "novel", "play", "poem", "story")
YEARS = tuple(str(year) for year in range(1800, 1900))

ALL = (
    *FIRST_NAMES, *FAMILY_NAMES, *TOWNS, *REGIONS, *WORK_STARTS, *WORK_ENDS,
    *ORGANISATION_STARTS, *ORGANISATION_ENDS, *PROFESSIONS, *PRODUCTS, *WORK_KINDS, *YEARS,
)  # fmt: skip
"""Every word of this module."""
