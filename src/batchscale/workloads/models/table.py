"""The table of models, and models by name with their options. Imports no jax."""

from batchscale.spec.experiment import Options
from batchscale.workloads.declarations import Table
from batchscale.workloads.models.declaration import ModelDeclaration

MODELS = Table(ModelDeclaration, "batchscale.workloads.models.builtin", "model")


def model_names() -> tuple[str, ...]:
    """The names of all models and families, in order."""
    return tuple(MODELS.all())


def find_model(name: str, options: Options) -> ModelDeclaration:
    """A model by name with the user's options filled in; ``fc_128_64`` is FC of any widths.

    Raises:
        UnknownNameError: There is no such model, or it has no such option.
        SpecError: An option has a value of the wrong kind.
    """
    known = MODELS.all()
    found = known.get(name)
    if found is None or found.member is not None:
        members = (family.member(name) for family in known.values() if family.member is not None)
        found = next((member for member in members if member is not None), None)
    return (found or MODELS.find(name)).with_options(options)
