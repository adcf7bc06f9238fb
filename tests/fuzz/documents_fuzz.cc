// Input: the text of any JSON document that users give to Ferry beside models: batch plans and
// records of attempts, thresholds, budgets, audits, attestations, settings of image processors.
// Every reader gets every input.

#include <algorithm>

#include "audit/budget.h"
#include "audit/document.h"
#include "batch/plan.h"
#include "batch/result.h"
#include "media/settings.h"
#include "media/video_settings.h"
#include "proof/attestation.h"
#include "report/thresholds.h"
#include "tests/fuzz/require.h"

namespace ferry::documents_fuzz {
namespace {

void read_batch(const std::string& text) {
  const auto plan = batch::parse_plan(text, "f");
  if (!plan) require_good_message(plan.error());
  if (plan) {
    require(!plan->tasks.empty());
    for (const batch::Task& task : plan->tasks) require(batch::is_task_id(task.id));
  }
  const auto result = batch::parse_result(text, "f");
  if (!result) require_good_message(result.error());
  if (result) require(batch::parse_result(batch::to_json(*result), "f").has_value());
  const auto started = batch::parse_started(text, "f");
  if (!started) require_good_message(started.error());
  if (started) require(batch::parse_started(batch::to_json(*started), "f").has_value());
}

void read_attestation(const std::string& text) {
  const auto read = proof::read_attestation(text, "f");
  if (!read) return require_good_message(read.error());
  const std::string again = proof::write_attestation(*read);
  require(proof::read_attestation(again, "f").has_value());
  require(!proof::claim_of(*read).empty());
}

void read_audit(const std::string& text) {
  const auto budget = audit::parse_budget(text, "f");
  if (!budget) require_good_message(budget.error());
  auto audited = audit::read_document(text, "f");
  if (!audited) return require_good_message(audited.error());
  audit::AuditReport report;
  report.audit = *std::move(audited);
  require(!audit::to_json(report, /*with_digests=*/true).empty());
  require(!audit::to_text(report).empty());
}

// Requires that frames of a video are inside of it, and that sizes are whole patches.
void run_videos(const media::VideoFiles& files) {
  const auto settings = media::video_settings_from(files, "d");
  if (!settings) {
    if (settings.error().code != ErrorCode::kIo) require_good_message(settings.error());
    return;
  }
  for (const int64_t total : {1, 7, 3000}) {
    const auto frames = media::taken_frames(*settings, total, 29.97);
    if (!frames) continue;
    require(!frames->empty() && frames->front() >= 0 && frames->back() < total);
    require(std::ranges::is_sorted(*frames));
    if (!settings->frame.any_shape()) continue;
    const auto size = media::video_size({640, 357}, std::ssize(*frames), *settings);
    const int side = settings->frame.patch * settings->frame.merge;
    if (size) require(size->width % side == 0 && size->height % side == 0);
    if (size) require(size->width > 0 && size->height > 0);
  }
}

void read_settings(const std::string& text) {
  for (const bool processor : {false, true}) {
    const auto settings = media::settings_from(processor ? "" : text, processor ? text : "", "d");
    run_videos(processor ? media::VideoFiles{text, {}, {}} : media::VideoFiles{{}, text, {}});
    if (!settings) {
      // Both files may be absent.
      if (settings.error().code != ErrorCode::kIo) require_good_message(settings.error());
      continue;
    }
    require(settings->tile >= 0 && settings->tile <= media::kMaxTile);
    require(settings->least_patches <= settings->most_patches);
  }
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto thresholds = report::Thresholds::parse(text, "f");
  if (!thresholds) require_good_message(thresholds.error());
  read_batch(text);
  read_attestation(text);
  read_audit(text);
  read_settings(text);
  return 0;
}

}  // namespace ferry::documents_fuzz
