// --to safetensors: the weights under their runtime names, as a bundle has them.
#include <utility>

#include "convert/export.h"
#include "convert/safetensors_files.h"
#include "graph/passes/passes.h"

namespace ferry::convert {

Result<PlannedFiles> plan_safetensors_files(plan::MappedModel& model,
                                            const ExportOptions& options) {
  std::vector<NamedRecipe> tensors;
  for (converters::AssembledComponent& component : model.components) {
    const graph::Model cast =
        FERRY_TRY(graph::cast_weights(std::move(component.model), options.convert.dtype));
    for (const graph::Weight& weight : cast.weights.weights()) {
      tensors.push_back({weight.name, weight.recipe});
    }
  }
  PlannedFiles planned;
  planned.files = FERRY_TRY(safetensors_files(std::move(tensors), model.copied, options));
  return planned;
}

}  // namespace ferry::convert
