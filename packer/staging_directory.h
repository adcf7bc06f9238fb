// StagingDirectory: a temporary sibling of the target that becomes the target in one step, or
// vanishes. The target may also be a file, which is written in such a directory. Private to
// packer/.
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
  // What the target is, and what may be replaced by it.
  enum class Kind {
    kBundle,      // a directory; a bundle or an empty directory
    kCheckpoint,  // a directory; an empty one, or one of files alone that a checkpoint could be
    kFile,        // the file of the target's name in the directory that is written; a file
  };

  StagingDirectory() = default;
  ~StagingDirectory();
  StagingDirectory(StagingDirectory&& other) noexcept;
  StagingDirectory& operator=(StagingDirectory&& other) noexcept;

  // Makes the folders above the target where there are none, which go away again if nothing is
  // published. Removes what killed runs left of the same target first, and stages that no run
  // holds. kExists if another process is writing the target, if the target exists and `overwrite`
  // is not set, or if it is nothing that this kind replaces.
  static Result<StagingDirectory> create(const std::string& target, bool overwrite,
                                         Kind kind = Kind::kBundle);
  // Does what create() does for the stage of this `id`, 16 hexadecimal digits. The stage is taken
  // over as it is, and made where there is none. kUnsupported on a file system without locks.
  static Result<StagingDirectory> create_stage(const std::string& target, bool overwrite,
                                               std::string_view id, Kind kind = Kind::kBundle);

  // The directory that is written.
  const std::string& path() const { return path_; }
  // The file for the journal of a stage.
  std::string journal_path() const;
  // Whether destruction leaves it to the next run. At first that is so for a stage with a journal.
  void keep(bool keep) { keep_ = keep; }
  bool is_kept() const { return keep_; }
  // The directory that is removed or kept.
  const std::string& root() const { return root_; }
  // The directory that the target is in.
  static std::string parent_of(const std::string& target);

  // Syncs the directory, gives it its name, syncs the parent. The files in it have been synced. An
  // old target is exchanged with it in one step and removed afterwards. With `synced` false nothing
  // is, nor has been, synced.
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
  std::string root_;  // empty when there is nothing to remove
  std::string path_;  // root_, or a directory in it
  Kind kind_ = Kind::kBundle;
  bool overwrite_ = false, keep_ = false;
  DirectoryLock lock_;  // of root_
  NewFolders made_parents_;
};

}  // namespace ferry::packer
