// Projectors, compared with those of llama.cpp's converter (--mmproj).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "conversion/export.h"
#include "core/sha256.h"
#include "core/thread_pool.h"
#include "tests/conversion/projector_files.h"
#include "tests/formats/temp_dir.h"

namespace ferry::conversion::export_mmproj_test {
namespace {

Result<packer::WrittenFiles> written(const std::string& checkpoint, const std::string& type,
                                     const std::string& out) {
  ExportOptions options;
  options.convert.source = checkpoint;
  options.format = ExportFormat::kMmproj;
  options.type = type;
  options.model_name = "tiny";
  options.out = out;
  ThreadPool pool(2);
  const Export made = FERRY_TRY(plan_export(options, pool));
  if (!made.plan) return fail(ErrorCode::kInternal, "problems with keys");
  return made.plan->write({.path = out}, pool, {});
}

// The lines of the list are "FAMILY TYPE SHA-256". The files of Pixtral and Mistral 3 have one
// tensor more, and those of Gemma 4 one key more (testdata/README.md).
TEST(MmprojExport, FilesAreThoseOfLlamaCpp) {
  std::ifstream table(std::string(FERRY_TESTDATA) + "/gguf_written/projector_digests.txt");
  std::string family, type, digest;
  int count = 0;
  std::set<std::string> families;
  const TempDir dir;
  for (; table >> family >> type >> digest; ++count) {
    SCOPED_TRACE(family + " " + type);
    const std::string source = dir / family;
    if (families.insert(family).second) projector_files::checkpoint(source, family);
    const std::string out = dir / (std::to_string(count) + ".gguf");
    const auto files = written(source, type, out);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ(to_hex(files->files[0].sha256), digest);
  }
  EXPECT_EQ(families.size(), std::size(projector_files::kFamilies));
  EXPECT_EQ(count, 4 * std::ssize(families));
}

}  // namespace
}  // namespace ferry::conversion::export_mmproj_test
