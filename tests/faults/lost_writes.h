// DiskModel: what may be on a disk after a power failure, from a trace of what a program did
// (call_trace.h). What was synced is there. Of the rest anything may be: contents and entries of
// directories do not wait for each other, and a write may be torn. It is the model of "All File
// Systems Are Not Created Equal" (Pillai et al., OSDI 2014), in which a file system promises no
// more than POSIX does, with one exception: entries of directories come in the order in which they
// were made, as those of a journal do.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ferry {

class DiskModel {
 public:
  // What survives of what was not synced.
  enum class Luck {
    kNothing,
    kEntries,       // names, without contents
    kEntriesSizes,  // names and sizes
    kAll,
    kRandom,
  };
  // Path below the root -> contents; directories end with a slash.
  using Tree = std::map<std::string, std::string>;

  // `root` is as it was when the trace began.
  explicit DiskModel(const std::string& root);
  void read_trace(const std::string& path);

  size_t operations() const { return operations_.size(); }
  // The disk when the power fails before operation `at`.
  Tree tree(size_t at, Luck luck, std::mt19937& random) const;

 private:
  struct Node {
    bool directory = false;
    std::map<std::string, size_t> entries = {};  // name -> node
    std::string contents = {};
  };
  // An entry that is set, or removed where there is no node.
  struct Entry {
    size_t directory = 0;
    std::string name;
    std::optional<size_t> node;
  };
  struct Operation {
    enum class Kind { kEntries, kWrite, kTruncate, kSync } kind = Kind::kSync;
    size_t node = 0;  // of the others
    uint64_t offset = 0;
    std::string data = {};
    std::vector<Entry> entries = {};  // of kEntries, all at once
    size_t synced_by = SIZE_MAX;      // the operation
  };

  size_t load(const std::string& path);
  std::pair<size_t, std::string> place_of(const std::string& path) const;
  void add_make(uint64_t inode, bool directory, const std::string& path);
  void add_rename(unsigned flags, const std::string& from, const std::string& to);
  void add_entries(std::vector<Entry> entries);
  void add_data(Operation operation, uint64_t inode);
  void find_syncs();
  void collect(const std::vector<Node>& nodes, size_t node, const std::string& path,
               Tree& tree) const;

  std::string root_;
  std::vector<Node> nodes_;              // as they were, and all that were made
  std::vector<Node> now_;                // while the trace is read
  std::map<uint64_t, size_t> by_inode_;  // while the trace is read
  std::vector<Operation> operations_;
};

// Makes `tree` in the directory `path`.
void lay_out(const DiskModel::Tree& tree, const std::string& path);

}  // namespace ferry
