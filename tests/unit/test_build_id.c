/* What tells one file from another. */
#include "jit/build_id.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/path.h"

static char* folder;
static char path[512];

static void open_folder(void) {
  cr_assert(eq(int, ons__temp_folder_create(NULL, &folder, NULL), 0));
  snprintf(path, sizeof(path), "%s/file", folder);
}

static void close_folder(void) { ons__temp_folder_remove(folder); }

TestSuite(build_id, .init = open_folder, .fini = close_folder);

static char* id_of(const void* bytes, size_t count) {
  cr_assert(eq(int, ons__file_write(NULL, path, strlen(path), bytes, count, NULL), 0));
  ons__string text;
  ons__string_init(&text, NULL);
  cr_assert(ons__build_id_append(path, &text));
  return ons__string_take(&text);
}

static void expect_same(char* first, char* second, bool same) {
  cr_expect(eq(int, strcmp(first, second) == 0, same), "%s%s", first, second);
  free(first);
  free(second);
}

/* An ELF file with one segment of notes, of a build id that ends in `last`. */
static size_t make_elf(unsigned char* out, unsigned char last, uint32_t name_bytes,
                       uint32_t id_bytes, char filler) {
  Elf64_Ehdr header = {
      .e_phoff = sizeof(header), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  const size_t at = sizeof(header) + sizeof(Elf64_Phdr);
  const Elf64_Nhdr note = {name_bytes, id_bytes, NT_GNU_BUILD_ID};
  const Elf64_Phdr segment = {
      .p_type = PT_NOTE, .p_offset = at, .p_filesz = sizeof(note) + 4 + 20};
  memset(out, filler, 400);
  memcpy(out, &header, sizeof(header));
  memcpy(out + sizeof(header), &segment, sizeof(segment));
  memcpy(out + at, &note, sizeof(note));
  memcpy(out + at + sizeof(note), "GNU", 4);
  memset(out + at + sizeof(note) + 4, last, 20);
  return 400;
}

Test(build_id, is_that_of_the_linker) {
  unsigned char one[512], two[512];
  make_elf(one, 0xab, 4, 20, 'x');
  make_elf(two, 0xab, 4, 20, 'y');
  expect_same(id_of(one, 400), id_of(two, 400), true); /* whatever else is in it */
  make_elf(two, 0xac, 4, 20, 'x');
  expect_same(id_of(one, 400), id_of(two, 400), false);
  char* text = id_of(one, 400);
  cr_expect(eq(int, strncmp(text, "abababab", 8), 0), "%s", text);
  free(text);
}

Test(build_id, of_a_broken_file_is_its_content) {
  unsigned char one[512], two[512];
  static const uint32_t sizes[][2] = {
      {4, 65}, {4, 0}, {0xffffffff, 20}, {4, 0xffffffff}, {8, 20}};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
    make_elf(one, 0xab, sizes[i][0], sizes[i][1], 'x');
    make_elf(two, 0xab, sizes[i][0], sizes[i][1], 'y');
    expect_same(id_of(one, 400), id_of(two, 400), false);
    for (size_t cut = 0; cut < 200; cut += 7) free(id_of(one, cut));
  }
}

Test(build_id, of_a_script_is_its_content) {
  expect_same(id_of("#!/bin/sh\na", 11), id_of("#!/bin/sh\nb", 11), false);
  expect_same(id_of("#!/bin/sh\na", 11), id_of("#!/bin/sh\na", 11), true);
  expect_same(id_of("", 0), id_of("", 0), true);
}

Test(build_id, of_a_large_file_without_one_is_its_time) {
  static char large[100000];
  char* first = id_of(large, sizeof(large));
  char* second = id_of(large, sizeof(large));
  cr_expect(strstr(first, " 100000\n") != NULL, "%s", first);
  cr_expect(strchr(second, '.') != NULL, "%s", second);
  free(first);
  free(second);
}

Test(build_id, of_nothing) {
  ons__string text;
  ons__string_init(&text, NULL);
  cr_expect(not(ons__build_id_append("/nowhere", &text)));
  cr_expect(not(ons__build_id_append(folder, &text)));
  cr_assert(eq(int, mkfifo(path, 0600), 0));
  cr_expect(not(ons__build_id_append(path, &text)));
  cr_expect(eq(sz, text.length, 0));
}
