"""What each kind is made of: names, structs and rules, joined for the CRD generator and for docs.

Clients need `kthena.api.registry` only; this module imports every struct.
"""

from dataclasses import dataclass

from kthena.api.meta import ApiStruct
from kthena.api.networking import externalmodelprovider, modelroute, modelserver
from kthena.api.registry import (
    AUTOSCALING_POLICIES,
    EXTERNAL_MODEL_PROVIDERS,
    KIND_INFOS,
    MODEL_BOOSTERS,
    MODEL_ROUTES,
    MODEL_SERVERS,
    MODEL_SERVINGS,
    KindInfo,
)
from kthena.api.rules import Rule
from kthena.api.workload import (
    autoscalingpolicy,
    autoscalingpolicy_rules,
    modelbooster,
    modelserving,
)


@dataclass(frozen=True, slots=True)
class KindDefinition:
    """Everything that a kind's CRD is generated from."""

    info: KindInfo
    struct: type[ApiStruct]
    spec: type[ApiStruct]
    status: type[ApiStruct]
    rules: tuple[Rule, ...]
    name_pattern: str = ""


DEFINITIONS = (
    KindDefinition(
        KIND_INFOS[MODEL_SERVINGS],
        modelserving.ModelServing,
        modelserving.ModelServingSpec,
        modelserving.ModelServingStatus,
        modelserving.RULES,
        modelserving.NAME_PATTERN,
    ),
    KindDefinition(
        KIND_INFOS[AUTOSCALING_POLICIES],
        autoscalingpolicy.AutoscalingPolicy,
        autoscalingpolicy.AutoscalingPolicySpec,
        autoscalingpolicy.AutoscalingPolicyStatus,
        autoscalingpolicy_rules.RULES,
    ),
    KindDefinition(
        KIND_INFOS[MODEL_SERVERS],
        modelserver.ModelServer,
        modelserver.ModelServerSpec,
        modelserver.ModelServerStatus,
        modelserver.RULES,
    ),
    KindDefinition(
        KIND_INFOS[MODEL_ROUTES],
        modelroute.ModelRoute,
        modelroute.ModelRouteSpec,
        modelroute.ModelRouteStatus,
        modelroute.RULES,
    ),
    KindDefinition(
        KIND_INFOS[EXTERNAL_MODEL_PROVIDERS],
        externalmodelprovider.ExternalModelProvider,
        externalmodelprovider.ExternalModelProviderSpec,
        externalmodelprovider.ExternalModelProviderStatus,
        externalmodelprovider.RULES,
    ),
    KindDefinition(
        KIND_INFOS[MODEL_BOOSTERS],
        modelbooster.ModelBooster,
        modelbooster.ModelBoosterSpec,
        modelbooster.ModelBoosterStatus,
        modelbooster.RULES,
    ),
)
"""All kinds that a CRD is generated for, in the order of the API groups; ModelBooster last."""
