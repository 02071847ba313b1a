//! The paths that any rule mentions, as a tree of keys: the walk over an event enters nothing else.

use rustc_hash::FxHashMap;

use super::index::Index;

/// A node's number; 0 is the event itself.
pub(super) type NodeId = u32;

pub(super) const ROOT: NodeId = 0;

/// What a rule wants to see at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Each leaf.
    Leaves,
    /// The value as it stands, for `changed`.
    Whole,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) children: FxHashMap<Box<str>, NodeId>,
    /// Fields whose path leads through here or ends here.
    uses: u32,
    leaf_uses: u32,
    whole_uses: u32,
    pub(super) index: Option<Box<Index>>,
}

#[derive(Debug, Clone)]
pub(super) struct Paths {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
}

impl Paths {
    pub(super) fn new() -> Paths {
        Paths { nodes: vec![Node::default()], free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id as usize).expect("node numbers are only handed out by this tree")
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(id as usize).expect("node numbers are only handed out by this tree")
    }

    /// Counts one more use of a path, and says where it ends.
    pub(super) fn acquire(&mut self, path: &[Box<str>], want: Want) -> NodeId {
        let mut at = ROOT;
        for key in path {
            at = match self.node(at).children.get(key) {
                Some(&child) => child,
                None => {
                    let child = self.new_node();
                    self.node_mut(at).children.insert(key.clone(), child);
                    child
                }
            };
            self.node_mut(at).uses += 1;
        }
        *self.node_mut(at).count(want) += 1;
        at
    }

    /// Takes back one use; what nobody uses any more is forgotten.
    pub(super) fn release(&mut self, path: &[Box<str>], want: Want) {
        self.release_below(ROOT, path, want);
    }

    fn release_below(&mut self, at: NodeId, path: &[Box<str>], want: Want) {
        let Some((key, rest)) = path.split_first() else {
            *self.node_mut(at).count(want) -= 1;
            return;
        };
        let Some(&child) = self.node(at).children.get(key) else { return };
        self.release_below(child, rest, want);
        let node = self.node_mut(child);
        node.uses -= 1;
        if node.uses == 0 {
            *node = Node::default();
            self.free.push(child);
            self.node_mut(at).children.remove(key);
        }
    }

    fn new_node(&mut self) -> NodeId {
        self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            (self.nodes.len() - 1) as NodeId
        })
    }
}

impl Node {
    pub(super) fn wants_leaves(&self) -> bool {
        self.leaf_uses > 0
    }

    pub(super) fn wants_whole(&self) -> bool {
        self.whole_uses > 0
    }

    fn count(&mut self, want: Want) -> &mut u32 {
        match want {
            Want::Leaves => &mut self.leaf_uses,
            Want::Whole => &mut self.whole_uses,
        }
    }
}
