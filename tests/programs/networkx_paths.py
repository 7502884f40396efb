import networkx as nx

G = nx.Graph()
G.add_weighted_edges_from([("a", "b", 4), ("a", "c", 1), ("c", "b", 2), ("b", "d", 5)])
print(nx.dijkstra_path(G, "a", "d"), nx.dijkstra_path_length(G, "a", "d"))
print(sorted(nx.connected_components(nx.Graph([(1, 2), (3, 4)])), key=min))
ranks = nx.pagerank(G)
print(max(ranks, key=ranks.get), round(sum(ranks.values()), 6))
