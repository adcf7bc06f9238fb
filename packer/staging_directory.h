// StagingDirectory is a temporary sibling of the target that becomes the target in one step, or is
// removed. A target that is a file is written in such a directory.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/directory.h"
#include "core/result.h"

namespace ferry::packer {

// Holds a sibling of NAME, locked, from create() until publish() or destruction:
//
//   .NAME.ferry-tmp-PID      the directory that is written, of one run
//   .NAME.ferry-stage-ID     of runs that go on with each other's work: `journal`, and `bundle`,
//                            the directory that is written
//
// Move-only, not thread-safe.
class StagingDirectory {
 public:
  // Selects the type of the target and what the target may replace.
  enum class Kind {
    kBundle,      // a directory that replaces a bundle or an empty directory
    kCheckpoint,  // a directory that replaces an empty one, or one that could be a checkpoint
    kFile,        // a file with the name of the target in the staging directory; it replaces a file
  };

  StagingDirectory() = default;
  ~StagingDirectory();
  StagingDirectory(StagingDirectory&& other) noexcept;
  StagingDirectory& operator=(StagingDirectory&& other) noexcept;

  // Makes missing folders above the target; they are removed again if nothing is published. First
  // removes what killed runs have left of this target, and stages that no run holds. kExists if
  // another process is writing the target, if the target exists and `overwrite` is false, or if
  // this kind of output does not replace it.
  static Result<StagingDirectory> create(const std::string& target, bool overwrite,
                                         Kind kind = Kind::kBundle);
  // Like create(), for the stage with this `id`, 16 hexadecimal digits. An existing stage is taken
  // over; otherwise a new one is made. kUnsupported on a file system without locks.
  static Result<StagingDirectory> create_stage(const std::string& target, bool overwrite,
                                               std::string_view id, Kind kind = Kind::kBundle);

  // Returns the directory in which the output is written.
  const std::string& path() const { return path_; }
  // Returns the error that create() would give now for what is at the target, for callers that
  // compute for long before they write.
  static Status check_target(const std::string& target, bool overwrite, Kind kind = Kind::kBundle);

  // Returns the path of the journal of a stage.
  std::string journal_path() const;
  // Sets whether the destructor keeps the directory for the next run. The default is true for a
  // stage with a journal.
  void keep(bool keep) { keep_ = keep; }
  bool is_kept() const { return keep_; }
  // Returns the directory that is removed or kept.
  const std::string& root() const { return root_; }
  // Returns the directory that contains the target.
  static std::string parent_of(const std::string& target);

  // Syncs the directory, gives it its final name and syncs the parent. The files in it must have
  // been synced. An old target is exchanged with the directory in one step and then removed. With
  // `synced` false nothing is synced.
  Status publish(bool synced);

 private:
  static Result<StagingDirectory> begin(const std::string& target, bool overwrite,
                                        std::string_view stage, Kind kind);
  Status make_private(const std::string& name);
  Status take_stage(const std::string& name, std::string_view id, DirectoryLock held);
  Status give_name();
  Status exchange();
  Status publish_file(bool replace);

  std::string target_, parent_;
  std::string root_;  // empty if there is nothing to remove
  std::string path_;  // root_, or a directory in it
  Kind kind_ = Kind::kBundle;
  bool overwrite_ = false, keep_ = false;
  DirectoryLock lock_;  // lock of root_
  NewFolders made_parents_;
};

}  // namespace ferry::packer
