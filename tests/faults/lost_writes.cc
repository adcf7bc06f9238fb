#include "tests/faults/lost_writes.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>  // RENAME_EXCHANGE
#include <filesystem>
#include <fstream>

#include "tests/cli/ferry_process.h"

namespace ferry {

namespace fs = std::filesystem;

DiskModel::DiskModel(const std::string& root) : root_(root) {
  load(root);
  now_ = nodes_;
}

size_t DiskModel::load(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  const size_t number = nodes_.size();
  by_inode_[info.st_ino] = number;
  nodes_.push_back({.directory = S_ISDIR(info.st_mode)});
  if (!nodes_[number].directory) {
    nodes_[number].contents = read_bytes(path);
    return number;
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    const size_t child = load(entry.path());
    nodes_[number].entries[entry.path().filename()] = child;
  }
  return number;
}

// Returns the node of the directory and the name, in the state that the trace has reached.
std::pair<size_t, std::string> DiskModel::place_of(const std::string& path) const {
  if (!path.starts_with(root_ + "/")) {
    ADD_FAILURE() << path << " is not below " << root_;
    return {0, path};
  }
  size_t directory = 0;
  const fs::path relative = fs::path(path.substr(root_.size() + 1)).lexically_normal();
  for (const fs::path& part : relative.parent_path()) {
    const auto found = now_[directory].entries.find(part);
    if (found == now_[directory].entries.end()) {
      ADD_FAILURE() << path;
      return {0, path};
    }
    directory = found->second;
  }
  return {directory, relative.filename()};
}

void DiskModel::read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  for (std::string kind; file >> kind;) {
    uint64_t inode = 0, number = 0, size = 0;
    std::string text, second;
    if (kind == "make") {
      file >> inode >> kind;
      std::getline(file >> std::ws, text);
      add_make(inode, kind == "d", text);
    } else if (kind == "write") {
      file >> inode >> number >> size;
      std::string data(size, '\0');
      file.get();
      file.read(data.data(), static_cast<std::streamsize>(size));
      add_data({.kind = Operation::Kind::kWrite, .offset = number, .data = std::move(data)}, inode);
    } else if (kind == "truncate") {
      file >> inode >> number;
      add_data({.kind = Operation::Kind::kTruncate, .offset = number}, inode);
    } else if (kind == "sync") {
      file >> inode;
      if (by_inode_.contains(inode)) add_data({.kind = Operation::Kind::kSync}, inode);
    } else if (kind == "rename") {
      file >> number;
      std::getline(file >> std::ws, text);
      std::getline(file, second);
      add_rename(static_cast<unsigned>(number), text, second);
    } else if (kind == "remove") {
      std::getline(file >> std::ws, text);
      const auto [directory, name] = place_of(text);
      add_entries({{directory, name, std::nullopt}});
    } else {
      FAIL() << kind;
    }
  }
  find_syncs();
}

// An inode number may be used again, for another node.
void DiskModel::add_make(uint64_t inode, bool directory, const std::string& path) {
  const size_t node = nodes_.size();
  nodes_.push_back({.directory = directory});
  now_.push_back({.directory = directory});
  by_inode_[inode] = node;
  const auto [parent, name] = place_of(path);
  add_entries({{parent, name, node}});
}

void DiskModel::add_rename(unsigned flags, const std::string& from, const std::string& to) {
  const auto [from_directory, from_name] = place_of(from);
  const auto [to_directory, to_name] = place_of(to);
  const auto node = now_[from_directory].entries.find(from_name);
  ASSERT_NE(node, now_[from_directory].entries.end()) << from;
  std::optional<size_t> other;
  if ((flags & RENAME_EXCHANGE) != 0) other = now_[to_directory].entries.at(to_name);
  // The new entry comes first: if both entries are on the disk, it decides.
  add_entries({{to_directory, to_name, node->second}, {from_directory, from_name, other}});
}

void DiskModel::add_entries(std::vector<Entry> entries) {
  for (const Entry& entry : entries) {
    auto& all = now_[entry.directory].entries;
    if (entry.node) {
      all[entry.name] = *entry.node;
    } else {
      all.erase(entry.name);
    }
  }
  operations_.push_back({.kind = Operation::Kind::kEntries, .entries = std::move(entries)});
}

void DiskModel::add_data(Operation operation, uint64_t inode) {
  const auto found = by_inode_.find(inode);
  ASSERT_NE(found, by_inode_.end());
  operation.node = found->second;
  operations_.push_back(std::move(operation));
}

// A sync makes the contents of a file or the entries of a directory durable.
void DiskModel::find_syncs() {
  std::map<size_t, size_t> next;  // node -> its first sync after this operation
  for (size_t i = operations_.size(); i-- > 0;) {
    Operation& operation = operations_[i];
    if (operation.kind == Operation::Kind::kSync) {
      next[operation.node] = i;
      continue;
    }
    const size_t node = operation.kind == Operation::Kind::kEntries ? operation.entries[0].directory
                                                                    : operation.node;
    if (const auto sync = next.find(node); sync != next.end()) operation.synced_by = sync->second;
  }
}

DiskModel::Tree DiskModel::tree(size_t at, Luck luck, std::mt19937& random) const {
  // Entries are durable in order: with an entry, all entries before it are on the disk.
  size_t entries_end = luck == Luck::kNothing ? 0 : at;
  if (luck == Luck::kRandom) entries_end = random() % (at + 1);
  for (size_t i = 0; i < at; ++i) {
    const bool synced = operations_[i].synced_by < at;
    if (operations_[i].kind == Operation::Kind::kEntries && synced) {
      entries_end = std::max(entries_end, i + 1);
    }
  }
  std::vector<Node> nodes = nodes_;
  for (size_t i = 0; i < at; ++i) {
    const Operation& operation = operations_[i];
    bool there = operation.synced_by < at || luck == Luck::kAll ||
                 (luck == Luck::kRandom && random() % 2 == 0);
    std::string& contents = nodes[operation.node].contents;
    switch (operation.kind) {
      case Operation::Kind::kSync:
        break;
      case Operation::Kind::kEntries:
        if (i >= entries_end) break;
        for (const Entry& entry : operation.entries) {
          if (entry.node) {
            nodes[entry.directory].entries[entry.name] = *entry.node;
          } else {
            nodes[entry.directory].entries.erase(entry.name);
          }
        }
        break;
      case Operation::Kind::kTruncate:
        if (there || luck == Luck::kEntriesSizes) contents.resize(operation.offset);
        break;
      case Operation::Kind::kWrite: {
        size_t size = there ? operation.data.size() : 0;
        const bool torn = luck == Luck::kRandom && operation.synced_by >= at && random() % 4 == 0;
        if (torn) size = random() % (size / 512 + 1) * 512;
        if (size == 0) break;
        contents.resize(std::max<size_t>(contents.size(), operation.offset + size));
        contents.replace(operation.offset, size, operation.data, 0, size);
        break;
      }
    }
  }
  Tree tree;
  collect(nodes, 0, "", tree);
  return tree;
}

void DiskModel::collect(const std::vector<Node>& nodes, size_t node, const std::string& path,
                        Tree& tree) const {
  if (!nodes[node].directory) {
    tree[path] = nodes[node].contents;
    return;
  }
  if (!path.empty()) tree[path + "/"];
  for (const auto& [name, child] : nodes[node].entries) {
    collect(nodes, child, path.empty() ? name : path + "/" + name, tree);
  }
}

void lay_out(const DiskModel::Tree& tree, const std::string& path) {
  fs::remove_all(path);
  fs::create_directory(path);
  for (const auto& [name, contents] : tree) {
    if (name.ends_with('/')) {
      fs::create_directory(path + "/" + name);
    } else {
      write_bytes(path + "/" + name, contents);
    }
  }
}

}  // namespace ferry
