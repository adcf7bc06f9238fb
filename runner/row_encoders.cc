#include "runner/row_encoders.h"

namespace ferry::runner {

Result<RowEncoders> RowEncoders::load(const packer::Bundle& bundle, ThreadPool& pool,
                                      const MethodOptions& options) {
  RowEncoders all;
  for (const RowEncoder* rows : packer::row_encoders(bundle.manifest())) {
    auto encoder = std::make_unique<VisionEncoder>(
        FERRY_TRY(VisionEncoder::load(bundle, pool, options, *rows)));
    all.encoders_.emplace_back(rows->role, std::move(encoder));
  }
  return all;
}

VisionEncoder* RowEncoders::find(const RowEncoder& rows) const {
  for (const auto& [role, encoder] : encoders_) {
    if (role == rows.role) return encoder.get();
  }
  return nullptr;
}

}  // namespace ferry::runner
