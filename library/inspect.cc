#include <ferry/inspect.h>

#include <numeric>
#include <utility>

#include "audit/document.h"
#include "checkpoint/hub_cache.h"
#include "core/dtype.h"
#include "library/internal.h"
#include "listing/listing.h"

namespace ferry {
inline namespace v0 {
namespace {

TensorInfo info_of(const listing::ListedTensor& from) {
  TensorInfo info;
  info.name = from.name;
  if (from.is_tensor) info.dtype = dtype_name(from.dtype);
  info.shape = from.shape;
  info.file = from.file;
  info.stored = from.stored;
  info.stored_bytes = from.stored_bytes;
  return info;
}

std::vector<ValueInfo> infos_of(const std::vector<listing::ListedValue>& values) {
  std::vector<ValueInfo> infos;
  for (const listing::ListedValue& value : values) {
    infos.push_back({value.name, value.kind, value.shape, value.bytes});
  }
  return infos;
}

MethodInfo info_of(const listing::ListedMethod& from) {
  MethodInfo info;
  info.name = from.name;
  info.inputs = infos_of(from.inputs);
  info.outputs = infos_of(from.outputs);
  info.buffers = infos_of(from.buffers);
  info.operators = from.operators;
  for (const listing::ListedDelegate& delegate : from.delegates) {
    info.delegates.push_back(delegate.backend);
  }
  info.planned_bytes =
      std::accumulate(from.planned_bytes.begin(), from.planned_bytes.end(), uint64_t{0});
  return info;
}

}  // namespace

Result<Inspection> inspect(const std::string& path, const Engine& engine) {
  return library::run(engine, path, [&](ThreadPool& pool) -> Result<Inspection> {
    const std::string found = FERRY_TRY(checkpoint::find_source(path));
    const listing::Listing listed = FERRY_TRY(listing::list_path(found, pool));
    Inspection inspection;
    inspection.kind = listed.kind;
    inspection.path = listed.path;
    inspection.model_type = listed.model_type;
    for (const listing::ListedFile& file : listed.files) {
      inspection.files.push_back({file.name, file.bytes});
    }
    for (const listing::ListedTensor& tensor : listed.tensors) {
      inspection.tensors.push_back(info_of(tensor));
    }
    for (const listing::ListedProgram& program : listed.programs) {
      ProgramInfo info{program.file, {}};
      for (const listing::ListedMethod& method : program.methods) {
        info.methods.push_back(info_of(method));
      }
      inspection.programs.push_back(std::move(info));
    }
    return inspection;
  });
}

Result<std::string> audit_json(const std::string& path, bool digests, const Engine& engine,
                               const OnProgress& progress) {
  return library::run(engine, path, [&](ThreadPool& pool) -> Result<std::string> {
    audit::AuditOptions options{.digests = digests};
    if (digests) options.progress = library::show(progress, "reading");
    audit::AuditReport report;
    report.audit = FERRY_TRY(audit::audit_path(path, options, pool));
    return audit::to_json(report, /*with_digests=*/true);
  });
}

}  // namespace v0
}  // namespace ferry
