// plan_adapters() plans the adapters of a bundle as data files of their own.
#pragma once

#include <vector>

#include "core/result.h"
#include "graph/passes/add_factors.h"
#include "packer/bundle_plan.h"
#include "plan/conversion.h"
#include "plan/mapped_model.h"

namespace ferry::plan {

struct PlannedAdapters {
  graph::FactorSlots slots;                 // the factors that programs take
  std::vector<packer::AdapterInput> files;  // by name
};

// Opens the adapters that the options name, and adds their tensors to the source of the checkpoint.
// Without adapters the slots are those of the options. kUnsupported, by name, for what factors
// cannot hold.
Result<PlannedAdapters> plan_adapters(const ConvertOptions& options, MappedModel& model);

}  // namespace ferry::plan
