"""The known datasets: one file each in this folder, and one line here.

Originals stand before the datasets that take their place. Other packages add theirs by the entry
points "polyseme.datasets".
"""

from __future__ import annotations

from polyseme._plugins import load_plugins
from polyseme.datasets.base import DatasetForm
from polyseme.datasets.specs import (
    corel5k,
    espgame,
    genius,
    hetrec_lastfm,
    hsun,
    iaprtc12,
    labelme,
    magnatagatune_part,
    magtag5k,
    msd,
    msd_subset,
    mtg_jamendo,
)

FORMS: dict[str, DatasetForm] = {
    form.name: form
    for form in (
        hsun.FORM,
        labelme.FORM,
        corel5k.FORM,
        iaprtc12.FORM,
        espgame.FORM,
        magtag5k.FORM,
        magnatagatune_part.FORM,
        msd.FORM,
        msd_subset.FORM,
        genius.FORM,
        hetrec_lastfm.FORM,
        mtg_jamendo.FORM,
    )
}
FORMS |= load_plugins("polyseme.datasets")
