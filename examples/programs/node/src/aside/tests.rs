use std::{os::unix::fs::MetadataExt as _, process::Command};

use super::*;

const FILES: [&str; 5] = ["CLUSTER", "LOCK", "NAME", "control-1", "journal-0000000001"];

fn fill(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    for name in FILES {
        fs::write(dir.join(name), name).unwrap();
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o777
}

#[test]
fn a_directory_is_renamed_and_the_new_one_keeps_the_names() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("data");
    for number in 1..=2 {
        fill(&dir);
        let aside = move_aside(&dir, "damaged").unwrap();
        assert_eq!(aside, place.path().canonicalize().unwrap().join(format!("data.damaged-{number}")));
        assert_eq!(
            (names(&aside), names(&dir)),
            (FILES.map(str::to_owned).to_vec(), ["CLUSTER", "NAME"].map(str::to_owned).to_vec())
        );
        let modes = ["", "NAME", "CLUSTER"].map(|name| mode(&dir.join(name)));
        assert_eq!(modes, [0o700, 0o600, 0o600]);
        assert_eq!(fs::read_to_string(dir.join("CLUSTER")).unwrap(), "CLUSTER");
    }
    for name in NAMES {
        fs::remove_file(dir.join(name)).unwrap();
    }
    move_aside(&dir, "given-up").unwrap();
    assert_eq!(names(&dir), [""; 0], "a directory without names");
}

#[test]
fn the_path_is_resolved_first() {
    let place = tempfile::tempdir().unwrap();
    let (real, link) = (place.path().join("disk/data"), place.path().join("link"));
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let slash = |path: &Path| PathBuf::from(format!("{}/", path.display()));
    for (n, dir) in [slash(&real), link.clone(), slash(&link), link.join("."), real.join("../data")].iter().enumerate()
    {
        fill(&real);
        let aside = move_aside(dir, "damaged").unwrap();
        assert_eq!(
            aside.file_name().unwrap().to_str().unwrap(),
            format!("data.damaged-{}", n + 1),
            "{}",
            dir.display()
        );
        assert!(link.is_symlink() && !real.is_symlink() && real.join("NAME").is_file(), "{}", dir.display());
    }
    let error = move_aside(&place.path().join("none"), "damaged").unwrap_err();
    assert!(error.to_string().contains("none can't be moved aside"), "{error}");
}

#[test]
fn a_working_directory_stays_where_it_is() {
    let place = tempfile::tempdir().unwrap();
    fill(place.path());
    fs::create_dir(place.path().join("lost+found")).unwrap();
    for number in 1..=2 {
        fs::write(place.path().join("control-1"), "").unwrap();
        let aside = move_resolved(place.path(), "damaged", Some(place.path())).unwrap();
        assert_eq!(aside, place.path().join(format!("damaged-{number}")));
        assert_eq!(mode(&aside), 0o700);
    }
    assert_eq!(names(place.path()), ["CLUSTER", "LOCK", "NAME", "damaged-1", "damaged-2", "lost+found"]);
    assert_eq!(names(&place.path().join("damaged-1")), ["CLUSTER", "NAME", "control-1", "journal-0000000001"]);
    assert_eq!(names(&place.path().join("damaged-2")), ["CLUSTER", "NAME", "control-1"]);
}

/// A separate file system, unmounted on drop.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// `None` if this process may not mount, which needs root.
    fn new(at: &'a Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then_some(Self(at))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn the_contents_of_a_mount_point_are_moved() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("data");
    fs::create_dir(&dir).unwrap();
    let Some(_mount) = Mount::new(&dir) else {
        eprintln!("SKIPPED: a mount point needs root");
        return;
    };
    fill(&dir);
    let aside = move_aside(&dir, "damaged").unwrap();
    assert_eq!(aside, dir.canonicalize().unwrap().join("damaged-1"));
    assert_eq!(names(&dir), ["CLUSTER", "LOCK", "NAME", "damaged-1"]);
    assert_eq!(names(place.path()), ["data"], "nothing was moved next to it, to another disk");
}
