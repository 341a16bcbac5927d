-- Health of a SidecarSet for Argo CD: resource.customizations.health.apps.kruise.io_SidecarSet
-- in ConfigMap argocd-cm. See docs/operating.md.
-- A person, a freeze, a window or a fleet ends the wait of a suspended rollout.
local suspended = {Paused = true, AwaitingApproval = true, GateInconclusive = true, Frozen = true, OutsideWindow = true, AwaitingPermit = true}
local ready = {status = "Progressing", message = "The operator has not observed the newest generation."}
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return ready
end
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return {status = "Degraded", message = condition.reason .. ": " .. condition.message}
  end
  if condition.type == "Ready" then
    ready = {status = "Progressing", message = condition.reason .. ": " .. condition.message}
    if condition.status == "True" then
      ready.status = "Healthy"
    elseif suspended[condition.reason] then
      ready.status = "Suspended"
    end
  end
end
return ready
