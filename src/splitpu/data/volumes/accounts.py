"""What is told about the files of patients, under names that say nothing of who the patients are."""

from collections.abc import Mapping, Sequence

from splitpu.data.images import Remark
from splitpu.data.readers import Accounted
from splitpu.data.scanning import Skipped, readable_name
from splitpu.data.volumes.patients import Patient
from splitpu.listing import listed

SKIPPED = "skipped"  # a file that should have been a slice
UNUSED = "unused"  # a file that is fine but not part of the volume
OTHERS = "other series"  # of the same patient
MISSING = "missing"  # slices between those that are there
IDENTIFYING = "identifying"  # the name of the folder, or of a file, says who the patient is
NAMED_AFTER = ", and its folder is called after the patient"  # the same, for a patient that cannot be used

_LONG_ENOUGH = 4  # letters and digits; a shorter name or number may be part of any word by chance


def says_who(text: str, who: Sequence[str] | set[str] | frozenset[str]) -> bool:
    """Whether a text is, or contains, the name or number of a patient.

    >>> says_who("Doe_John 1970", {"DOE^JOHN"}), says_who("case-7", {"DOE^JOHN", "7"}), says_who("7", {"7"})
    (True, False, True)
    """
    plain = _letters(text)
    for one in who:
        words = _letters(one)
        if words and (words == plain or (len(words) >= _LONG_ENOUGH and words in plain)):
            return True
    return False


def accounted(
    patients: Sequence[Patient],
    remarks: Mapping[int, Sequence[Remark]],
    reasons: Mapping[int, str],
    *,
    series_is_settled: bool = False,
) -> Accounted:
    """Neutral numbers for patients whose folder names them, every file that is not used, and the warnings.

    Which series is taken is settled once there is a model: only its training could have chosen another.
    """
    named = {position for position, why in reasons.items() if why.endswith(NAMED_AFTER)}
    named |= {at for at, some in remarks.items() if any(one.kind == IDENTIFYING and one.part < 0 for one in some)}
    called = [one.under_number() if position in named else one for position, one in enumerate(patients)]
    renamed = [called[position].name for position in sorted(named)]
    chosen: list[str] = []
    with_gaps: list[str] = []
    skipped: list[Skipped] = []
    for position, some in sorted(remarks.items()):
        hidden = {one.part for one in some if one.kind == IDENTIFYING}
        for one in some:
            if one.kind in (SKIPPED, UNUSED):
                name = _part_name(called[position], one.part, hidden)
                skipped.append(Skipped(name, one.text, one.kind == SKIPPED))
            elif one.kind == OTHERS:
                chosen.append(f"{called[position].name} also has {one.text}")
            elif one.kind == MISSING:
                with_gaps.append(f"{called[position].name} lacks {one.text}")
    warnings = []
    if chosen:
        advice = "as in the training, where fit --series chooses one" if series_is_settled else "choose with --series"
        warnings.append(
            f"{_patients_have(chosen)} several series, of which the one with the most slices was taken "
            f"({listed(chosen, separator='; ')}): {advice}."
        )
    if with_gaps:
        warnings.append(
            f"{_patients_have(with_gaps)} larger distances between some slices than between most, as if slices were "
            f"missing ({listed(with_gaps, separator='; ')}): the slices that are there are taken without gaps; look "
            "whether all files were copied."
        )
    if renamed:
        warnings.append(
            f"{len(renamed):,} folders are called by the name or number of their patient, so these are known by their "
            f"place in the order of the folders instead ({listed(renamed, separator='; ')})."
        )
    return Accounted(called, skipped, warnings, sum(len(patient.parts) for patient in patients))


def _patients_have(those: Sequence[str]) -> str:
    return "1 patient has" if len(those) == 1 else f"{len(those):,} patients have"


def _part_name(patient: Patient, part: int, hidden: set[int]) -> str:
    if patient.parts[part].path == patient.path:
        return patient.name
    if part in hidden or -1 in hidden:  # folders inside may repeat what the patient's own is called
        return f"{patient.name}/file {part + 1} of {len(patient.parts)}"
    return readable_name(f"{patient.name}/{patient.source.inside(part)}", 0)


def _letters(text: str) -> str:
    return "".join(letter for letter in str(text).casefold() if letter.isalnum())
